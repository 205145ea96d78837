#include "main.h"

#include <cstdio>
#include <cstring>
#include <exception>

namespace hy3::test {

namespace {
int failures = 0;
}

std::vector<Test>& tests() {
    static std::vector<Test> all;
    return all;
}

void report_failure(const char* file, int line, const std::string& what) {
    failures++;
    std::printf("%s:%d: %s\n", file, line, what.c_str());
}

void check_error(const char* file, int line, Status status, const std::string& part,
                 const std::function<void()>& act) {
    try {
        act();
        report_failure(file, line, cat("no error; expected one about '", part, "'"));
    } catch (const Error& error) {
        if (error.status() != status || std::strstr(error.what(), part.c_str()) == nullptr) {
            report_failure(file, line,
                           cat("expected status ", static_cast<int>(status), " about '", part, "', got ",
                               static_cast<int>(error.status()), ": ", error.what()));
        }
    }
}

}  // namespace hy3::test

int main(int argc, char** argv) {
    using namespace hy3::test;
    const char* const argument = argc > 1 ? argv[1] : "";
    const bool all_but = *argument == '-';
    int ran = 0;
    for (const Test& test : tests()) {
        if ((std::strstr(test.name, argument + all_but) != nullptr) == all_but) continue;
        ran++;
        const int before = failures;
        try {
            test.run();
        } catch (const std::exception& error) {
            report_failure(test.name, 0, hy3::cat("uncaught: ", error.what()));
        }
        if (failures != before) std::printf("FAILED %s\n", test.name);
    }
    std::printf("%d tests, %d failed checks\n", ran, failures);
    return failures != 0 || ran == 0 ? 1 : 0;
}
