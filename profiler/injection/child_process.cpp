#include "profiler/injection/child_process.hpp"

#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>
#include <csignal>
#include <cstring>

#include <array>
#include <cerrno>
#include <optional>

#include "scenarios/types/error.hpp"

namespace stowage::profiler {
namespace {

/// Texts as C wants them: a list of pointers with a null at its end. Points into `texts`.
std::vector<char*> pointers_to(std::vector<std::string>& texts) {
    std::vector<char*> pointers;
    for (std::string& text : texts) pointers.push_back(text.data());
    pointers.push_back(nullptr);
    return pointers;
}

std::vector<std::string> lines_of(const Environment& environment) {
    std::vector<std::string> lines;
    for (const auto& [name, value] : environment) lines.push_back(name + "=" + value);
    return lines;
}

/// Zero, or the reason as errno has it.
int start(std::vector<std::string> command, const Environment& environment, posix_spawn_file_actions_t* actions,
          pid_t& child) {
    std::vector<std::string> lines = lines_of(environment);
    std::vector<char*> arguments = pointers_to(command);
    std::vector<char*> variables = pointers_to(lines);
    return posix_spawnp(&child, arguments.front(), actions, nullptr, arguments.data(), variables.data());
}

int wait_for(pid_t child) {
    int status = 0;
    while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
    }
    return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

/// Interrupts are ignored as long as it lives.
class IgnoredInterrupts {
public:
    IgnoredInterrupts() : interrupt_(std::signal(SIGINT, SIG_IGN)), quit_(std::signal(SIGQUIT, SIG_IGN)) {}
    IgnoredInterrupts(const IgnoredInterrupts&) = delete;
    IgnoredInterrupts& operator=(const IgnoredInterrupts&) = delete;
    IgnoredInterrupts(IgnoredInterrupts&&) = delete;
    IgnoredInterrupts& operator=(IgnoredInterrupts&&) = delete;
    ~IgnoredInterrupts() {
        static_cast<void>(std::signal(SIGINT, interrupt_));
        static_cast<void>(std::signal(SIGQUIT, quit_));
    }

private:
    using Handler = void (*)(int);
    Handler interrupt_;
    Handler quit_;
};

std::string read_all(int file) {
    std::string text;
    std::array<char, 4096> part{};
    while (true) {
        const ssize_t got = read(file, part.data(), part.size());
        if (got > 0)
            text.append(part.data(), static_cast<std::size_t>(got));
        else if (got == 0 || errno != EINTR)
            return text;
    }
}

}  // namespace

int run(const std::vector<std::string>& command, const Environment& environment) {
    if (command.empty()) throw types::Error(types::ExitCode::command_line, "there is no command to run");
    pid_t child = 0;
    if (const int failure = start(command, environment, nullptr, child); failure != 0)
        throw types::Error(types::ExitCode::command_line, "'" + command.front() + "' cannot be started: " +
                                                              std::strerror(failure));  // NOLINT(concurrency-mt-unsafe)
    const IgnoredInterrupts ignored;
    return wait_for(child);
}

std::string output_of(const std::vector<std::string>& command, const Environment& environment) {
    std::array<int, 2> ends{};
    if (pipe2(ends.data(), O_CLOEXEC) != 0) return "";
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, ends[1], STDOUT_FILENO);
    posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, "/dev/null", O_WRONLY, 0);
    pid_t child = 0;
    const int failure = start(command, environment, &actions, child);
    posix_spawn_file_actions_destroy(&actions);
    close(ends[1]);
    std::string text;
    if (failure == 0) {
        text = read_all(ends[0]);
        if (wait_for(child) != 0) text.clear();
    }
    close(ends[0]);
    return text;
}

}  // namespace stowage::profiler
