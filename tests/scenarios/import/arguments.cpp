#include "tests/scenarios/import/arguments.hpp"

#include "scenarios/types/error.hpp"

namespace stowage::reader::testing {
namespace {

std::string without(std::string text, const std::string& part) {
    for (std::size_t at = text.find(part); at != std::string::npos; at = text.find(part, at))
        text.erase(at, part.size());
    return text;
}

}  // namespace

std::string shipped_h100() { return std::string(STOWAGE_SOURCE_DIR) + "/scenarios/hardware/h100-8gpu.yaml"; }

ImportedScenario import_text(const std::string& text, std::int64_t world_size) {
    const support::TemporaryFolder folder;
    support::write_text(folder / "args.yaml", text);
    return import_megatron(folder / "args.yaml", ImportedHardware{shipped_h100(), std::nullopt, world_size});
}

std::string error_of(const std::string& more, std::int64_t world_size) {
    const support::TemporaryFolder folder;
    support::write_text(folder / "args.yaml", kSmallJob + more);
    try {
        import_megatron(folder / "args.yaml", ImportedHardware{shipped_h100(), std::nullopt, world_size});
    } catch (const types::InputError& error) {
        return without(error.what(), folder.path().string() + "/");
    }
    return {};
}

std::string notes_of(const std::string& more) {
    std::string notes;
    for (const std::string& note : import_text(kSmallJob + more).notes) notes += note + "\n";
    const std::size_t file = notes.find("args.yaml");
    return file == std::string::npos ? notes : without(notes, notes.substr(0, file));
}

}  // namespace stowage::reader::testing
