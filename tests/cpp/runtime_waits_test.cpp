// What a user is told of a wait that takes long, on the fake plugin: which wait it is, once, and
// that it goes on.
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <functional>
#include <string>
#include <thread>

#include "base/metrics.h"
#include "base/settings.h"
#include "runtime_fixture.h"

namespace torch_xla {
namespace {

using testing::add;
using testing::AsyncFake;
using testing::eventually;
using testing::FakePlugin;
using testing::Floats;
using testing::kFakePlugin;
using testing::Session;
using testing::Tensor;
using testing::tensor;
using testing::values_of;

// What the process writes to stderr while this lives goes to a file.
class CapturedStderr {
 public:
  CapturedStderr() { dup2(fileno(file_), STDERR_FILENO); }
  ~CapturedStderr() {
    dup2(stderr_, STDERR_FILENO);
    close(stderr_);
    std::fclose(file_);
  }
  std::string text() const {
    std::string text(4096, '\0');
    const ssize_t size = pread(fileno(file_), text.data(), text.size(), 0);
    text.resize(static_cast<std::size_t>(std::max<ssize_t>(size, 0)));
    return text;
  }

 private:
  std::FILE* file_ = std::tmpfile();
  int stderr_ = dup(STDERR_FILENO);
};

// What is said of `call` while `what` hangs in the plugin.
std::string said_while_hanging(const FakePlugin& fake, const char* what,
                               const std::function<void()>& call) {
  base::Counter& slow = base::counter("SlowWait");
  const std::int64_t before = slow.value();
  base::settings().wait_warning.set(1);
  fake.hang(what);
  const CapturedStderr captured;
  std::thread waiter(call);
  EXPECT(eventually([&] { return slow.value() > before && !captured.text().empty(); }));
  fake.release();
  waiter.join();
  EXPECT_EQ(slow.value(), before + 1);
  base::settings().reload();
  return captured.text();
}

TEST(a_long_wait_says_what_it_waits_for) {
  const AsyncFake fake;
  runtime::Device& device = runtime::device(0);
  const Tensor a = tensor(device, {1, 2});
  const Tensor b = add(a, a);
  const auto starts_with = [](const std::string& text, const std::string& subject) {
    return text.starts_with("torch_xla: warning: a thread has waited 1 s for " + subject);
  };
  const std::string compile =
      said_while_hanging(fake, "PJRT_Client_Compile", [&] { runtime::sync(device, false); });
  EXPECT(starts_with(compile, "XLA to compile a program of "));
  EXPECT(compile.find("torch_xla.experimental.scan") != std::string::npos);
  const Tensor c = add(b, b);
  runtime::sync(device, true);
  const Tensor d = add(c, c);
  const std::string read = said_while_hanging(fake, "Execution", [&] {
    runtime::sync(device, false, "train.py:9");
    values_of(d);
  });
  EXPECT(starts_with(read, "graph "));
  EXPECT(read.find("(started at train.py:9) on xla:0, and goes on waiting") != std::string::npos);
  const Tensor e = add(d, d);
  EXPECT(starts_with(said_while_hanging(fake, "Execution", [&] { runtime::sync(device, true); }),
                     "the launches of xla:0"));
  EXPECT(starts_with(said_while_hanging(fake, "Transfer", [&] { values_of(e); }),
                     "the copy of f32[2] from xla:0"));
  EXPECT(values_of(e) == (Floats{16, 32}));
}

TEST(a_launch_that_does_not_return_is_told_of_by_who_waits_for_its_results) {
  const FakePlugin fake = FakePlugin::copy_of(kFakePlugin);
  const Session session(fake.path());
  const Tensor a = tensor(runtime::device(0), {1, 2});
  const Tensor b = add(a, a);
  const std::string said =
      said_while_hanging(fake, "PJRT_LoadedExecutable_Execute", [&] { values_of(b); });
  EXPECT(said.find("for the launch of f32[2] on xla:0") != std::string::npos);
}

}  // namespace
}  // namespace torch_xla
