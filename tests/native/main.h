// The native tests' harness. A test registers itself; a failed check is printed and the test goes on.
//
//   TEST(a_missing_file_is_named) {
//       CHECK(2 + 2 == 4);
//       CHECK_EQ(split_path("a.gguf", 0, 2), "a-00001-of-00002.gguf");
//       CHECK_ERROR(Status::io, "no-such-file", Gguf::open("no-such-file"));
//   }
//
// hy3_native_tests [SUBSTRING] runs the tests whose names contain SUBSTRING, hy3_native_tests -SUBSTRING all
// but those; exit 1 when a check failed.
#pragma once

#include <functional>
#include <sstream>
#include <string>
#include <vector>

#include "core/error.h"

namespace hy3::test {

struct Test {
    const char* name;
    std::function<void()> run;
};

// All registered tests; a function, so that it exists before the first static registration.
std::vector<Test>& tests();

struct Registration {
    Registration(const char* name, std::function<void()> run) { tests().push_back({name, std::move(run)}); }
};

void report_failure(const char* file, int line, const std::string& what);

template <typename A, typename B>
void check_equal(const char* file, int line, const char* text, const A& a, const B& b) {
    if (a == b) return;
    std::ostringstream out;
    out << text << ": " << a << " != " << b;
    report_failure(file, line, out.str());
}

// Runs `act`, which must throw an Error of that status whose message contains `part`.
void check_error(const char* file, int line, Status status, const std::string& part,
                 const std::function<void()>& act);

}  // namespace hy3::test

#define TEST(name)                                                            \
    static void test_##name();                                                \
    static const hy3::test::Registration register_##name(#name, test_##name); \
    static void test_##name()

#define CHECK(condition)                                                                      \
    do {                                                                                      \
        if (!(condition)) hy3::test::report_failure(__FILE__, __LINE__, #condition " fails"); \
    } while (false)

#define CHECK_EQ(a, b) hy3::test::check_equal(__FILE__, __LINE__, #a " == " #b, a, b)

#define CHECK_ERROR(status, part, ...) \
    hy3::test::check_error(__FILE__, __LINE__, status, part, [&] { (void)(__VA_ARGS__); })
