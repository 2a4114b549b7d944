#include "planner/layers/norm.hpp"

namespace stowage::layers {
namespace {

bool has_mean(const Writer& writer) { return writer.model.normalization == types::Normalization::LayerNorm; }

}  // namespace

NormStatistics run_norm(Writer& writer, const std::string& name, std::int64_t rows, std::int64_t width) {
    NormStatistics statistics;
    if (has_mean(writer)) statistics.slots.push_back(writer.make(name + ".mean", {rows}, DataType::fp32));
    statistics.slots.push_back(writer.make(name + ".rstd", {rows}, DataType::fp32));
    writer.memory_kernel(name + ".forward", 2 * 2 * rows * width);
    return statistics;
}

SavedNorm save_norm(Writer& writer, const std::string& name, std::int64_t rows, std::int64_t width, Slot input,
                    const NormStatistics& statistics, std::optional<Module> group) {
    SavedNorm saved{name, rows, width, writer.script.save(input, group), {}};
    for (Slot slot : statistics.slots) {
        saved.statistics.push_back(writer.script.save(slot, group));
        writer.script.drop(slot);
    }
    return saved;
}

void norm_backward(Writer& writer, const SavedNorm& saved) {
    writer.script.read(saved.input);
    for (SavedIndex statistic : saved.statistics) writer.script.read(statistic);
    writer.memory_kernel(saved.name + ".backward", 3 * 2 * saved.rows * saved.width);
    writer.accumulate_small_gradient(saved.name + ".weight", {saved.width});
    if (has_mean(writer)) writer.accumulate_small_gradient(saved.name + ".bias", {saved.width});
    writer.script.forget(saved.input);
    for (SavedIndex statistic : saved.statistics) writer.script.forget(statistic);
}

}  // namespace stowage::layers
