// A small test harness: TEST(claim) { ... } registers a test, EXPECT* record failures with their
// place, and run_tests runs all tests or those whose name contains the first argument. The closing
// line reads "N passed, N failed", and how many were unsupported or expected to fail, if any.
#pragma once

#include <chrono>
#include <cstdio>
#include <exception>
#include <functional>
#include <iostream>
#include <map>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

namespace torch_xla::testing {

// How a test ended. Unsupported: what it is about is not there, which is neither right nor wrong.
// Expected failure: what it claims is known not to hold.
enum class Outcome { kPassed, kFailed, kUnsupported, kExpectedFailure };

// Thrown by a test that cannot be run, with what it lacks.
struct Unsupported {
  std::string what;
};

struct TestCase {
  std::string name;
  std::function<Outcome()> run;
};

inline std::vector<TestCase>& test_cases() {
  static std::vector<TestCase> cases;
  return cases;
}

inline int& failures_in_test() {
  static int count = 0;
  return count;
}

inline void record_failure(const char* file, int line, const std::string& what) {
  ++failures_in_test();
  std::cerr << file << ":" << line << ": " << what << "\n";
}

template <typename A, typename B>
void expect_eq(const A& a, const B& b, const char* text, const char* file, int line) {
  if (a == b) return;
  std::ostringstream out;
  out << "expected equal: " << text;
  if constexpr (requires {
                  out << a;
                  out << b;
                })
    out << "\n  left:  " << a << "\n  right: " << b;
  record_failure(file, line, out.str());
}

template <typename F>
void expect_throws(F&& body, const std::string& substring, const char* file, int line) {
  try {
    body();
  } catch (const std::exception& e) {
    if (std::string(e.what()).find(substring) == std::string::npos) {
      record_failure(
          file, line,
          "expected an error containing \"" + substring + "\", got \"" + e.what() + "\"");
    }
    return;
  }
  record_failure(file, line, "expected an error containing \"" + substring + "\", got none");
}

inline Outcome outcome_of(const std::string& name, const std::function<void()>& body) {
  failures_in_test() = 0;
  try {
    body();
  } catch (const Unsupported& unsupported) {
    std::cerr << "UNSUPPORTED " << name << ": " << unsupported.what << "\n";
    return failures_in_test() == 0 ? Outcome::kUnsupported : Outcome::kFailed;
  } catch (const std::exception& e) {
    record_failure(name.c_str(), 0, std::string("uncaught exception: ") + e.what());
  }
  return failures_in_test() == 0 ? Outcome::kPassed : Outcome::kFailed;
}

struct Registration {
  Registration(const std::string& name, const std::function<void()>& body) {
    test_cases().push_back({name, [=] { return outcome_of(name, body); }});
  }
};

inline int run_tests(int argc, char** argv) {
  const std::string filter = argc > 1 ? argv[1] : "";
  std::map<Outcome, int> count;
  for (const TestCase& test : test_cases()) {
    if (test.name.find(filter) == std::string::npos) continue;
    const Outcome outcome = test.run();
    ++count[outcome];
    if (outcome == Outcome::kFailed) std::cerr << "FAILED " << test.name << "\n";
  }
  std::cout << count[Outcome::kPassed] << " passed, " << count[Outcome::kFailed] << " failed";
  if (const int n = count[Outcome::kUnsupported]) std::cout << ", " << n << " unsupported";
  if (const int n = count[Outcome::kExpectedFailure]) std::cout << ", " << n << " expected to fail";
  std::cout << std::endl;
  return count[Outcome::kFailed] == 0 && count[Outcome::kPassed] > 0 ? 0 : 1;
}

// Runs `condition` until it holds, for at most ten seconds.
template <typename Condition>
bool eventually(Condition condition) {
  for (int i = 0; i < 10000; ++i) {
    if (condition()) return true;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return false;
}

}  // namespace torch_xla::testing

#define TEST(claim)                                                                    \
  static void claim();                                                                 \
  static const ::torch_xla::testing::Registration claim##_registration(#claim, claim); \
  static void claim()
#define EXPECT(condition)                                                                \
  do {                                                                                   \
    if (!(condition))                                                                    \
      ::torch_xla::testing::record_failure(__FILE__, __LINE__, "expected: " #condition); \
  } while (false)
#define EXPECT_EQ(a, b) ::torch_xla::testing::expect_eq((a), (b), #a " == " #b, __FILE__, __LINE__)
#define EXPECT_THROWS(expression, substring) \
  ::torch_xla::testing::expect_throws([&] { expression; }, (substring), __FILE__, __LINE__)
