// Does what the driver does with CUDA_INJECTION64_PATH, without a driver; then ends as it is told to: "exit", "fork" (a
// child ends first, in an orderly way), "kill", or "twice" (the function is called once more).

#include <dlfcn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <string>

int main(int count, char** arguments) {
    const std::string how = count > 1 ? arguments[1] : "exit";
    const char* const path = std::getenv("CUDA_INJECTION64_PATH");
    void* const library = path == nullptr ? nullptr : dlopen(path, RTLD_NOW);
    if (library == nullptr) {
        const char* const why = dlerror();
        std::fprintf(stderr, "%s\n", why == nullptr ? "CUDA_INJECTION64_PATH is not set" : why);
        return 9;
    }
    const auto initialize = reinterpret_cast<int (*)()>(dlsym(library, "InitializeInjection"));
    if (initialize == nullptr || initialize() != 1) return 8;
    if (how == "twice" && initialize() != 1) return 7;
    if (how == "kill") static_cast<void>(std::raise(SIGKILL));
    if (how == "fork") {
        const pid_t child = fork();
        if (child == 0) std::exit(0);  // runs what is registered for the end of the process, in the child
        int status = 0;
        waitpid(child, &status, 0);
        if (status != 0) return 6;
    }
    return 4;
}
