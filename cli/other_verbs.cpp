#include <memory>

#include "cli/verb.hpp"

namespace stowage::cli {
namespace {

/// A verb that takes any arguments and answers with an error.
template <class Failure>
void add_refusal(CLI::App& app, Run& chosen, const std::string& name, const std::string& about,
                 const std::string& reason) {
    CLI::App* const verb = app.add_subcommand(name, about);
    verb->footer("Not here: " + reason + "\n");
    verb->prefix_command();
    verb->callback([name, reason, &chosen] {
        chosen = [name, reason]() -> types::ExitCode { throw Failure(name + ": " + reason); };
    });
}

}  // namespace

void add_device_commands(CLI::App& app, Run& chosen) {
    const std::string reason =
        "is not in this version: of the verbs that need a GPU and the library libstowage_gpu.so only 'execute' and "
        "'profile' are; "
        "plan, simulate and check need neither";
    const std::string suffix = " (needs a GPU; not in this version)";
    add_refusal<NoDeviceError>(app, chosen, "calibrate", "Measures this machine's rates" + suffix, reason);
}

}  // namespace stowage::cli
