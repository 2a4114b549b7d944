#include "cli/verb.hpp"

#include <cerrno>
#include <cstdio>
#include <cstring>

namespace stowage::cli {

CLI::App* add_verb(CLI::App& app, const std::string& name, const std::string& about, const std::string& example,
                   CommonOptions& common) {
    CLI::App* const verb = app.add_subcommand(name, about);
    verb->footer("Example:\n  " + example + "\n");
    verb->add_flag("--json", common.json, "the answer as JSON on standard output, nothing else there");
    verb->add_flag("--quiet", common.quiet, "only errors, and what --json or --out asks for");
    return verb;
}

void print(const std::string& text) {
    if (std::fwrite(text.data(), 1, text.size(), stdout) == text.size() && std::fflush(stdout) == 0) return;
    throw types::InputError(std::string("standard output: error: writing it failed: ") + std::strerror(errno));
}

void say(const CommonOptions& common, const std::string& line) {
    if (!common.quiet) std::fputs(("stowage: " + line + "\n").c_str(), stderr);
}

}  // namespace stowage::cli
