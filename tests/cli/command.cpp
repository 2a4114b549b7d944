#include "tests/cli/command.hpp"

#include <sys/wait.h>

#include <cstdlib>

#include "tests/support/temporary_folder.hpp"

namespace stowage::cli {

CommandResult stowage(const std::string& arguments) {
    const support::TemporaryFolder folder;
    const std::string out = (folder / "out").string();
    const std::string error = (folder / "error").string();
    const std::string line =
        "cd '" STOWAGE_SOURCE_DIR "' && '" STOWAGE_COMMAND "' " + arguments + " >" + out + " 2>" + error;
    const int status = std::system(line.c_str());
    return {WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status), support::file_text(out),
            support::file_text(error)};
}

}  // namespace stowage::cli
