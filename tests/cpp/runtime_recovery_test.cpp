// What tensors are after a program that could not be started, on the fake plugin: those that it was
// to change are as before, what can be computed without it is, and the next step works.
#include <atomic>
#include <random>

#include "runtime_fixture.h"

namespace torch_xla {
namespace {

using testing::add;
using testing::add_;
using testing::array_of;
using testing::AsyncFake;
using testing::binary_entry;
using testing::eventually;
using testing::FakePlugin;
using testing::Floats;
using testing::kFakePlugin;
using testing::multiply;
using testing::record;
using testing::scale;
using testing::Session;
using testing::Tensor;
using testing::tensor;
using testing::values_of;
using testing::write;

const char* const kExecute = "PJRT_LoadedExecutable_Execute";

// Something that no platform lowers.
Tensor impossible(const Tensor& a, const Tensor& b) {
  return record(binary_entry("no_such_operator", a.type()), {a, b});
}

// w += 0.5 * x, momentum = momentum * momentum + x: a step with numbers that travel; returns a
// loss.
struct Model {
  Tensor x;
  Tensor w;
  Tensor momentum;

  explicit Model(runtime::Device& device)
      : x(tensor(device, {2, 4})), w(tensor(device, {1, 1})), momentum(tensor(device, {2, 0})) {}
  Tensor step() const {
    const Tensor loss = multiply(w, x);
    write(binary_entry("mul.Tensor", momentum.type()), {momentum, momentum});
    add_(momentum, x);
    add_(w, scale(x, 0.5));
    return loss;
  }
  bool is_at(const Floats& weights, const Floats& momenta) const {
    return values_of(w) == weights && values_of(momentum) == momenta;
  }
};

TEST(after_any_call_that_fails_the_model_is_as_before_the_step) {
  for (const char* const call :
       {kExecute, "PJRT_Client_BufferFromHostBuffer", "PJRT_Client_Compile"}) {
    for (const bool waits : {false, true}) {
      const FakePlugin fake = FakePlugin::copy_of(kFakePlugin);
      fake.set_async(true);
      const Session session(fake.path());
      runtime::Device& device = runtime::device(0);
      const Model model(device);
      for (int failure = 0; failure < 3; ++failure) {
        fake.fail(call, 8, "no memory for that");
        const Tensor loss = model.step();
        EXPECT_THROWS(
            {
              runtime::sync(device, waits);
              values_of(loss);
            },
            "no memory for that");
        fake.fail(call, 0, "");
        EXPECT(model.is_at({1, 1}, {2, 0}));
        EXPECT(values_of(loss) == (Floats{2, 4}));
      }
      const Tensor loss = model.step();
      runtime::sync(device, true);
      EXPECT(values_of(loss) == (Floats{2, 4}));
      EXPECT(model.is_at({2, 3}, {6, 4}));
      // What came back is given to the plugin again.
      fake.fail("Allocation", 8, "no memory");
      const Tensor last = model.step();
      EXPECT_THROWS(runtime::sync(device, true), "and so are 2 inputs that they were to replace");
    }
  }
}

TEST(the_error_says_what_is_lost_and_what_is_as_before) {
  const FakePlugin fake = FakePlugin::copy_of(kFakePlugin);
  const Session session(fake.path());
  runtime::Device& device = runtime::device(0);
  const Model model(device);
  fake.fail(kExecute, 8, "no memory");
  model.step();
  EXPECT_THROWS(runtime::sync(device, true),
                "its 2 results are computed anew if they are read; the 2 tensors that it was to "
                "change are as before");
  fake.reset();
  EXPECT(model.is_at({1, 1}, {2, 0}));
  // What is computed anew keeps what it starts from, so that no launch may take that.
  fake.fail(kExecute, 8, "no memory");
  Tensor lost = model.step();
  EXPECT_THROWS(runtime::sync(device, true), "its 3 results are computed anew");
  fake.reset();
  model.step();
  runtime::sync(device, true);
  EXPECT(model.is_at({2, 3}, {6, 4}));
  EXPECT(values_of(lost) == (Floats{2, 4}));
  // Where the plugin has taken the memory already, that is lost.
  fake.fail("Allocation", 8, "no memory");
  const Tensor next = model.step();
  EXPECT_THROWS(runtime::sync(device, true),
                "its 3 results are lost, and so are 2 inputs that they were to replace");
  fake.reset();
  EXPECT_THROWS(values_of(model.w), "its 3 results are lost");
  EXPECT(values_of(model.x) == (Floats{2, 4}));
  const Model other(device);
  const Tensor loss_of_other = other.step();
  runtime::sync(device, true);
  EXPECT(other.is_at({2, 3}, {6, 4}));
}

TEST(work_that_fails_later_loses_only_what_it_took) {
  const AsyncFake fake;
  runtime::Device& device = runtime::device(0);
  const Model model(device);
  fake.fail("Execution", 8, "no memory");
  const Tensor loss = model.step();
  EXPECT_THROWS(runtime::sync(device, true), "and so are 2 inputs that they were to replace");
  fake.reset();
  EXPECT_THROWS(values_of(model.w), "its 3 results are lost");
  EXPECT(values_of(model.x) == (Floats{2, 4}));
  EXPECT(values_of(add(model.x, model.x)) == (Floats{4, 8}));
}

TEST(what_shared_a_program_with_what_failed_is_computed_without_it) {
  const FakePlugin fake = FakePlugin::copy_of(kFakePlugin);
  const Session session(fake.path());
  runtime::Device& device = runtime::device(0);
  const Tensor a = tensor(device, {1, 2});
  const Tensor w = tensor(device, {5, 6});
  const Tensor small = add(a, a);
  const Tensor large = multiply(small, a);
  add_(w, large);
  fake.fail(kExecute, 8, "no memory");
  EXPECT_THROWS(runtime::sync(device, true), "computed anew if they are read");
  // As long as it does not fit, each read says so.
  for (int i = 0; i < 2; ++i) EXPECT_THROWS(values_of(large), "its 1 results are computed anew");
  EXPECT(values_of(w) == (Floats{5, 6}));
  fake.reset();
  const int calls = fake.calls(kExecute);
  EXPECT(values_of(small) == (Floats{2, 4}));
  EXPECT_EQ(fake.calls(kExecute), calls + 1);
  EXPECT(array_of(large)->is_failed());
  // Together with what is made from them, one launch for all that failed together.
  EXPECT(values_of(add(large, small)) == (Floats{4, 12}));
  EXPECT_EQ(fake.calls(kExecute), calls + 3);
  EXPECT(values_of(large) == (Floats{2, 8}));
  EXPECT(values_of(small) == (Floats{2, 4}));
  EXPECT_EQ(fake.calls(kExecute), calls + 3);
}

TEST(what_failed_keeps_no_memory_once_it_is_gone) {
  const FakePlugin fake = FakePlugin::copy_of(kFakePlugin);
  const Session session(fake.path());
  runtime::Device& device = runtime::device(0);
  const Tensor a = tensor(device, {1, 2});
  fake.fail(kExecute, 8, "no memory");
  {
    Tensor failing = add(a, tensor(device, {3, 4}));
    // Steps behind each other that nobody has looked at: not all of them are kept.
    for (int i = 0; i < 40; ++i) {
      runtime::sync(device, false);
      failing = add(failing, tensor(device, {1, 1}));
    }
    EXPECT_THROWS(runtime::sync(device, true), "no memory");
    EXPECT(fake.live("buffer") < 14);
  }
  EXPECT_EQ(fake.live("buffer"), 1);
}

TEST(launches_behind_a_failed_one_fail_with_it_and_all_is_as_before_the_first) {
  const AsyncFake fake;
  runtime::Device& device = runtime::device(0);
  const Model model(device);
  Tensor loss = model.step();
  runtime::sync(device, true);
  fake.hang(kExecute);
  fake.fail(kExecute, 8, "no memory");
  std::vector<Tensor> losses;
  for (int i = 0; i < 4; ++i) {
    losses.push_back(model.step());
    runtime::sync(device, false);
  }
  EXPECT(eventually([&] { return fake.waiting(kExecute) == 1; }));
  const int calls = fake.calls(kExecute);
  fake.release();
  // Recorded on what will never be.
  const Tensor pending = add(model.w, model.w);
  const Tensor last = model.step();
  EXPECT_THROWS(values_of(losses[3]), "no memory");
  EXPECT_EQ(fake.calls(kExecute), calls);
  fake.reset();
  EXPECT(model.is_at({2, 3}, {6, 4}));
  // The others come from what it was before, too.
  EXPECT(values_of(last) == (Floats{12, 44}));
  EXPECT(values_of(losses[2]) == (Floats{8, 28}));
  EXPECT(values_of(losses[0]) == (Floats{4, 12}));
  EXPECT(values_of(pending) == (Floats{12, 22}));
  EXPECT(values_of(losses[3]) == (Floats{10, 36}));
  loss = model.step();
  runtime::sync(device, true);
  EXPECT(values_of(loss) == (Floats{4, 12}));
  EXPECT(model.is_at({3, 5}, {38, 20}));
}

TEST(a_barrier_after_a_failure_that_nobody_has_seen_computes_what_it_can) {
  const AsyncFake fake;
  runtime::Device& device = runtime::device(0);
  const Model model(device);
  fake.fail(kExecute, 8, "no memory");
  const Tensor loss = model.step();
  runtime::sync(device, false);
  EXPECT(eventually([&] { return array_of(loss)->is_failed(); }));
  fake.reset();
  const Tensor other = add(model.x, model.x);
  const Tensor next = model.step();
  EXPECT_THROWS(runtime::sync(device, true), "no memory");
  EXPECT(testing::is_leaf(other));
  EXPECT(values_of(other) == (Floats{4, 8}));
  EXPECT(model.is_at({1, 1}, {2, 0}));
  EXPECT(values_of(next) == (Floats{4, 12}));
  // Barriers leave what failed to whoever reads it.
  runtime::sync(device, true);
  const Tensor twice = add(loss, loss);
  EXPECT_THROWS(runtime::sync(device, true), "no memory");
  EXPECT(values_of(twice) == (Floats{4, 8}));
  EXPECT(values_of(loss) == (Floats{2, 4}));
}

TEST(tensors_that_shared_a_new_value_get_back_their_own) {
  const AsyncFake fake;
  runtime::Device& device = runtime::device(0);
  const Tensor a = tensor(device, {1, 2});
  const Tensor b = tensor(device, {3, 4});
  fake.fail(kExecute, 8, "no memory");
  {
    std::vector<graph::NodeRef> garbage;
    const Tensor sum = add(a, b);
    const std::lock_guard lock(device.live().mutex);
    b.alias->write(sum.alias->value(), garbage);
    a.alias->write(sum.alias->value(), garbage);
  }
  EXPECT_THROWS(runtime::sync(device, true), "no memory");
  fake.reset();
  EXPECT(values_of(a) == (Floats{1, 2}));
  EXPECT(values_of(b) == (Floats{3, 4}));
}

TEST(one_error_that_is_seen_does_not_hide_another) {
  const AsyncFake fake;
  runtime::Device& device = runtime::device(0);
  const Tensor one = tensor(device, {1});
  const Tensor a = tensor(device, {10});
  const Tensor b = tensor(device, {20});
  fake.fail(kExecute, 8, "the first error");
  add_(a, one);
  runtime::sync(device, false);
  EXPECT(eventually([&] { return array_of(a)->is_failed(); }));
  fake.fail(kExecute, 8, "the second error");
  add_(b, one);
  runtime::sync(device, false);
  EXPECT_THROWS(values_of(b), "the second error");
  fake.reset();
  EXPECT(values_of(b) == Floats{20});
  EXPECT_THROWS(values_of(a), "the first error");
  EXPECT(values_of(a) == Floats{10});
}

TEST(a_read_that_a_barrier_overtakes_gives_back_what_was_before) {
  const AsyncFake fake;
  runtime::Device& device = runtime::device(0);
  const Tensor one = tensor(device, {1});
  const Tensor w = tensor(device, {5});
  add_(w, one);
  fake.hang(kExecute);
  fake.fail(kExecute, 8, "no memory");
  runtime::ArrayPtr array = array_of(w);  // on its way
  const Tensor other = add(one, one);
  runtime::sync(device, false);
  EXPECT(testing::is_leaf(w));
  fake.release();
  EXPECT_THROWS(array->wait_ready(), "no memory");
  EXPECT(eventually([&] { return array_of(other)->is_failed(); }));
  fake.reset();
  EXPECT(values_of(w) == Floats{5});
  // What was before is kept no longer than until the read has been launched.
  add_(w, one);
  fake.hang(kExecute);
  const runtime::ArrayPtr next = array_of(w);
  const Tensor another = add(one, one);
  runtime::sync(device, false);
  fake.release();
  runtime::sync(device, true);
  EXPECT(values_of(w) == Floats{6});
  array.reset();  // which failed, and would be computed from it
  EXPECT(eventually([&] { return fake.live("buffer") == 3; }));  // one, w, another
}

TEST(a_barrier_that_cannot_be_compiled_computes_all_but_what_cannot) {
  const Session session(kFakePlugin);
  runtime::Device& device = runtime::device(0);
  const Tensor a = tensor(device, {1, 2});
  const Tensor w = tensor(device, {5, 6});
  const Tensor unrelated = add(a, a);
  const Tensor below = multiply(a, a);
  const Tensor bad = impossible(below, a);
  const Tensor beside = add(below, a);
  const Tensor above = add(bad, below);
  add_(w, above);
  add_(a, a);
  EXPECT_THROWS(runtime::sync(device, false, "train.py:7"), "(at train.py:7) failed: ");
  EXPECT(values_of(unrelated) == (Floats{2, 4}));
  EXPECT(values_of(below) == (Floats{1, 4}));
  EXPECT(values_of(beside) == (Floats{2, 6}));
  EXPECT(values_of(a) == (Floats{2, 4}));
  EXPECT(values_of(w) == (Floats{5, 6}));
  EXPECT_THROWS(values_of(bad), "no lowering");
  EXPECT_THROWS(values_of(above), "no lowering");
  add_(w, a);
  runtime::sync(device, true);
  EXPECT(values_of(w) == (Floats{7, 10}));
  EXPECT(testing::is_leaf(unrelated));
}

TEST(a_read_that_cannot_be_compiled_leaves_all_as_it_was) {
  const Session session(kFakePlugin);
  runtime::Device& device = runtime::device(0);
  const Tensor a = tensor(device, {1, 2});
  const Tensor below = add(a, a);
  const Tensor bad = impossible(below, a);
  for (int i = 0; i < 2; ++i) EXPECT_THROWS(values_of(bad), "no lowering");
  EXPECT(!testing::is_leaf(bad));
  EXPECT(values_of(below) == (Floats{2, 4}));
  EXPECT_THROWS(runtime::sync(device, false), "no lowering");
  runtime::sync(device, true);
  EXPECT_THROWS(values_of(bad), "no lowering");
}

TEST(a_chain_is_computed_up_to_what_cannot_be_compiled) {
  const Session session(kFakePlugin);
  runtime::Device& device = runtime::device(0);
  std::vector<Tensor> chain = {tensor(device, {1})};
  for (int i = 0; i < 30; ++i) {
    const Tensor& last = chain.back();
    chain.push_back(i == 20 ? impossible(last, last) : add(last, chain.front()));
  }
  EXPECT_THROWS(runtime::sync(device, false), "no lowering");
  for (int i = 0; i <= 20; ++i) EXPECT(values_of(chain[i]) == Floats{static_cast<float>(i + 1)});
  for (int i = 21; i <= 30; ++i) EXPECT_THROWS(values_of(chain[i]), "no lowering");
}

TEST(memory_that_ends_while_a_read_is_compiled_does_not_stay_with_what_was_recorded) {
  const FakePlugin fake = FakePlugin::copy_of(kFakePlugin);
  const Session session(fake.path());
  const Model model(runtime::device(0));
  fake.fail("PJRT_Client_Compile", 8, "the program needs more than there is");
  const Tensor loss = model.step();
  const Tensor total = add(loss, model.w);
  EXPECT_THROWS(values_of(total), "more than there is");
  fake.reset();
  EXPECT(values_of(total) == (Floats{4, 7}));
  EXPECT(values_of(model.x) == (Floats{2, 4}));
}

TEST(views_are_read_anew_after_a_failure) {
  const FakePlugin fake = FakePlugin::copy_of(kFakePlugin);
  const Session session(fake.path());
  runtime::Device& device = runtime::device(0);
  const Tensor a = tensor(device, {1, 2, 3});
  const auto view = graph::ViewRef::adopt(new graph::View(
      {}, testing::slice_entry(a.type(), 2), testing::slice_entry(a.type(), 2, true), {1}));
  graph::ViewCache cache;
  const auto read_view = [&](std::vector<graph::NodeRef>& freed) {
    return std::vector<graph::Value>(1, graph::read_view(*a.alias, view.get(), cache, freed));
  };
  for (const char* const call : {"PJRT_Client_Compile", kExecute}) {
    add_(a, a);
    std::vector<graph::NodeRef> garbage;
    {
      const std::lock_guard lock(device.live().mutex);
      read_view(garbage);
    }
    fake.fail(call, 8, "no memory");
    EXPECT_THROWS(runtime::sync(device, true), "no memory");
    fake.reset();
    runtime::ArrayPtr array = runtime::compute(device, read_view).front();
    array->wait_ready();
    EXPECT(values_of(a) == (Floats{1, 2, 3}));
  }
}

// Failures come and go while one thread trains, one reads, and one works on tensors of its own.
TEST(threads_go_on_while_launches_fail_now_and_then) {
  const AsyncFake fake;
  runtime::Device& device = runtime::device(0);
  const Tensor one = tensor(device, {1});
  const Tensor total = tensor(device, {0});
  std::atomic<bool> is_done{false};
  std::atomic<int> num_errors{0};
  const auto attempt = [&](const auto& body) {
    try {
      body();
    } catch (const base::Error& error) {
      if (error.kind() != base::ErrorKind::kOutOfMemory) throw;
      ++num_errors;
    }
  };
  std::thread trainer([&] {
    for (int step = 0; step < 200; ++step) {
      attempt([&] {
        add_(total, one);
        runtime::sync(device, step % 3 == 0);
      });
    }
    is_done = true;
  });
  std::thread reader([&] {
    while (!is_done) {
      attempt([&] {
        const float now = values_of(total)[0];
        EXPECT(now >= 0 && now <= 200);
      });
    }
  });
  std::thread other([&] {
    while (!is_done) {
      attempt([&] {
        const Tensor own = tensor(device, {3});
        EXPECT(values_of(add(own, own)) == Floats{6});
      });
    }
  });
  std::mt19937 random(7);
  while (!is_done) {
    fake.fail(kExecute, random() % 3 == 0 ? 8 : 0, "no memory");
    std::this_thread::sleep_for(std::chrono::microseconds(100));
  }
  fake.fail(kExecute, 0, "");
  for (std::thread* thread : {&trainer, &reader, &other}) thread->join();
  EXPECT(num_errors > 0);
  attempt([&] { values_of(total); });
  const float last = values_of(total)[0];
  add_(total, one);
  EXPECT(values_of(total)[0] == last + 1);
}

}  // namespace
}  // namespace torch_xla
