#include "cli/hardware_choice.hpp"

#include <cctype>
#include <system_error>
#include <vector>

namespace stowage::cli {
namespace {

namespace fs = std::filesystem;

constexpr const char* kFolder = "hardware";
constexpr const char* kDefault = "h100-8gpu.yaml";

/// Folders in which the shipped files may lie: the scenario's own, the working folder's, and those around the command,
/// which lies in a build folder at the root of the sources.
std::vector<fs::path> likely_folders(const fs::path& folder) {
    std::vector<fs::path> folders{folder, "scenarios"};
    std::error_code failed;
    fs::path around = fs::read_symlink("/proc/self/exe", failed).parent_path();
    for (int level = 0; !failed && level < 3 && around.has_relative_path(); ++level, around = around.parent_path())
        folders.push_back(around / "scenarios");
    return folders;
}

std::optional<fs::path> shipped_hardware(const fs::path& folder) {
    for (const fs::path& candidate : likely_folders(folder)) {
        std::error_code failed;
        if (fs::is_regular_file(candidate / kFolder / kDefault, failed)) return candidate / kFolder / kDefault;
    }
    return std::nullopt;
}

}  // namespace

void HardwareOptions::add_to(CLI::App& verb) {
    verb.add_option("--hardware", hardware, "the machines: a hardware file (default: the shipped H100 machine)")
        ->type_name("FILE");
    CLI::Option* const by_nodes =
        verb.add_option("--nodes", nodes, "machines of the job")->check(CLI::Range(1, 1'000'000));
    verb.add_option("--world-size", world_size, "GPUs of the job, in place of --nodes")
        ->check(CLI::Range(1, 1'000'000))
        ->excludes(by_nodes);
}

reader::ImportedHardware HardwareOptions::choose(const fs::path& folder) const {
    if (hardware) return {*hardware, nodes, world_size};
    const auto shipped = shipped_hardware(folder);
    if (!shipped)
        throw CommandLineError("--hardware: the shipped file " + std::string(kFolder) + "/" + kDefault +
                               " was not found\nhint: name a hardware file, for example --hardware my-machine.yaml");
    return {*shipped, nodes, world_size};
}

std::optional<fs::path> shipped_machine(const std::string& gpu) {
    const auto shipped = shipped_hardware(".");
    if (!shipped) return std::nullopt;
    for (const char* kind : {"-8gpu", "-4gpu", "-1gpu", "-nvl72"}) {
        std::error_code failed;
        const fs::path machine = shipped->parent_path() / (gpu + kind + ".yaml");
        if (gpu.find('/') == std::string::npos && fs::is_regular_file(machine, failed)) return machine;
    }
    return std::nullopt;
}

std::optional<fs::path> shipped_machine_of_device(const std::string& device) {
    std::string word;
    for (const char letter : device + " ") {
        if (std::isalnum(static_cast<unsigned char>(letter)) != 0) {
            word += static_cast<char>(std::tolower(static_cast<unsigned char>(letter)));
            continue;
        }
        const auto machine = word.empty() ? std::nullopt : shipped_machine(word);
        if (machine) return machine;
        word.clear();
    }
    return std::nullopt;
}

std::string as_seen_from(const fs::path& folder, const fs::path& file) {
    std::error_code failed;
    const fs::path from = fs::weakly_canonical(folder.empty() ? fs::path(".") : folder, failed);
    const fs::path to = failed ? file : fs::weakly_canonical(file, failed);
    if (failed) return fs::absolute(file).string();
    const fs::path relative = to.lexically_relative(from);
    return relative.empty() ? to.string() : relative.string();
}

}  // namespace stowage::cli
