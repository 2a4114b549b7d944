#include "planner/layers/mamba_scan.hpp"

#include <string>
#include <utility>

namespace stowage::layers {
namespace {

/// Shapes, operations and bytes of the kernels.
class ScanCosts {
public:
    ScanCosts(const Writer& writer, const MambaDimensions& mamba) : batch_(writer.dim.micro_batch), d_(mamba) {}

    [[nodiscard]] Shape wide(std::int64_t width) const { return {batch_, d_.scan_sequence, width}; }
    [[nodiscard]] Shape steps() const { return {batch_, d_.scan_heads, d_.chunks, MambaDimensions::kChunk}; }
    [[nodiscard]] Shape states() const { return {batch_, d_.chunks, d_.scan_heads, d_.head_size, d_.state}; }
    [[nodiscard]] Shape last_state() const { return {batch_, d_.scan_heads, d_.head_size, d_.state}; }
    /// A sum for each 64 elements of a state.
    [[nodiscard]] Shape block_sums() const {
        return {batch_, d_.scan_heads, d_.chunks, (d_.head_size * d_.state + 63) / 64};
    }
    [[nodiscard]] Shape products() const {
        return {batch_, d_.chunks, d_.scan_groups, MambaDimensions::kChunk, MambaDimensions::kChunk};
    }
    [[nodiscard]] Shape grouped() const { return {batch_, d_.scan_sequence, d_.scan_groups, d_.state}; }

    /// Between tokens and states: x, B, C against the states of every head.
    [[nodiscard]] double through_states() const { return 2 * number(d_.scan_tokens * d_.scan_inner * d_.state); }
    /// Inside the chunks, the causal half.
    [[nodiscard]] double inside_chunks() const {
        return number(d_.scan_tokens * d_.scan_inner * MambaDimensions::kChunk);
    }
    /// C B^T of every chunk, whole.
    [[nodiscard]] double product() const {
        return 2 * number(d_.scan_tokens * d_.scan_groups * d_.state * MambaDimensions::kChunk);
    }

    [[nodiscard]] std::int64_t x_bytes() const { return 2 * d_.scan_tokens * d_.scan_inner; }
    [[nodiscard]] std::int64_t b_bytes() const { return 2 * d_.scan_tokens * d_.scan_groups * d_.state; }
    [[nodiscard]] std::int64_t step_bytes() const { return 4 * d_.scan_tokens * d_.scan_heads; }
    [[nodiscard]] std::int64_t state_bytes() const { return 2 * d_.state_elements(batch_); }
    [[nodiscard]] std::int64_t product_bytes() const {
        return 4 * batch_ * d_.chunks * d_.scan_groups * MambaDimensions::kChunk * MambaDimensions::kChunk;
    }
    [[nodiscard]] std::int64_t convolved_bytes() const { return 2 * d_.scan_tokens * d_.scan_convolved; }

private:
    static double number(std::int64_t value) { return static_cast<double>(value); }
    std::int64_t batch_;
    const MambaDimensions& d_;
};

void scan_kernel(Writer& writer, const std::string& name, double flops, std::int64_t traffic) {
    writer.script.kernel({"scan." + name, KernelClass::memory_bound, flops, Bytes{traffic}, false, {}});
}

Slot convolve(Writer& writer, const ScanCosts& costs, const MambaDimensions& mamba) {
    writer.script.part(Part::mixer_conv);
    const Slot output = writer.make("conv1d.output", costs.wide(mamba.scan_convolved));
    writer.memory_kernel("conv1d.forward", 2 * costs.convolved_bytes());
    writer.script.part(Part::mixer_scan);
    return output;
}

/// Steps and their running sums.
std::vector<Slot> sum_steps(Writer& writer, const ScanCosts& costs) {
    std::vector<Slot> sums{writer.make("scan.step_sums", costs.steps(), DataType::fp32),
                           writer.make("scan.steps", costs.steps(), DataType::fp32)};
    scan_kernel(writer, "cumsum", 0, costs.step_bytes() / 2 + 2 * costs.step_bytes());
    return sums;
}

/// The states before each chunk, and the one after the last, which lives as long.
struct ChunkStates {
    Slot before{};
    Slot last{};
};

ChunkStates states_before_chunks(Writer& writer, const ScanCosts& costs, DataType type) {
    const Slot own = writer.make("scan.chunk_states", costs.states(), DataType::fp32);
    scan_kernel(writer, "chunk_state", costs.through_states(),
                costs.x_bytes() + costs.b_bytes() + 2 * costs.step_bytes() + 2 * costs.state_bytes());
    ChunkStates states;
    states.before = writer.make("scan.states", costs.states(), type);
    states.last = writer.make("scan.last_state", costs.last_state(), DataType::fp32);
    const std::int64_t width = type == DataType::fp32 ? 2 : 1;
    scan_kernel(writer, "state_passing", 0, (2 + width) * costs.state_bytes());
    writer.script.drop(own);
    return states;
}

Slot multiply_chunks(Writer& writer, const ScanCosts& costs) {
    const Slot products = writer.make("scan.products", costs.products(), DataType::fp32);
    scan_kernel(writer, "bmm", costs.product(), 2 * costs.b_bytes() + costs.product_bytes());
    return products;
}

/// Small vectors that autograd keeps beside the function's tensors. A rank of several context-parallel ones works on
/// slices of the convolution's parameters, which are copies.
std::vector<Slot> small_vectors(Writer& writer, const MambaDimensions& mamba) {
    std::vector<Slot> vectors;
    for (const char* name : {"scan.A_exp", "scan.A", "scan.dt_bias_fp32"})
        vectors.push_back(writer.make(name, {mamba.scan_heads}, DataType::fp32));
    writer.memory_kernel("scan.A", 4 * 4 * mamba.scan_heads);
    if (writer.dim.context > 1) {
        vectors.push_back(writer.make("conv1d.weight_slice", {mamba.scan_convolved, MambaDimensions::kTaps}));
        vectors.push_back(writer.make("conv1d.bias_slice", {mamba.scan_convolved}));
        writer.memory_kernel("conv1d.slice", 4 * mamba.scan_convolved * (MambaDimensions::kTaps + 1));
    }
    return vectors;
}

/// Gradients of the states from the outputs, then passed back along the sequence; what later kernels read, states
/// included, is made in 16 bits, and `states` goes.
std::vector<Slot> state_gradients(Writer& writer, const ScanCosts& costs, Slot states) {
    const Slot own = writer.make("scan.state_gradient", costs.states(), DataType::fp32);
    scan_kernel(writer, "chunk_scan.dstates", costs.through_states(),
                costs.x_bytes() + costs.b_bytes() + costs.step_bytes() + 2 * costs.state_bytes());
    std::vector<Slot> narrow{writer.make("scan.passed_gradient", costs.states()),
                             writer.make("scan.narrow_states", costs.states())};
    const Slot block_sums = writer.make("scan.block_sums_gradient", costs.block_sums(), DataType::fp32);
    scan_kernel(writer, "state_passing.backward", 0, 6 * costs.state_bytes());
    for (Slot slot : {block_sums, own, states}) writer.script.drop(slot);
    return narrow;
}

/// Gradients of x, B and C.
std::vector<Slot> operand_gradients(Writer& writer, const ScanCosts& costs) {
    std::vector<Slot> made{writer.make("scan.step_gradient", costs.steps(), DataType::fp32)};
    scan_kernel(
        writer, "chunk_scan.dx", costs.inside_chunks() + costs.through_states(),
        3 * costs.x_bytes() + costs.b_bytes() + 3 * costs.step_bytes() + costs.state_bytes() + costs.product_bytes());
    made.push_back(writer.make("scan.b_gradient", costs.grouped(), DataType::fp32));
    made.push_back(writer.make("scan.next_sums_gradient", costs.steps(), DataType::fp32));
    scan_kernel(writer, "chunk_state.db", costs.through_states(),
                costs.x_bytes() + 3 * costs.b_bytes() + 3 * costs.step_bytes() + costs.state_bytes());
    made.push_back(writer.make("scan.c_gradient", costs.grouped(), DataType::fp32));
    made.push_back(writer.make("scan.previous_sums_gradient", costs.steps(), DataType::fp32));
    scan_kernel(writer, "chunk_scan.dc", costs.through_states(),
                costs.x_bytes() + 3 * costs.b_bytes() + 2 * costs.step_bytes() + costs.state_bytes());
    made.push_back(writer.make("scan.product_gradient", costs.products(), DataType::fp32));
    scan_kernel(writer, "chunk_scan.dcb", costs.inside_chunks(),
                2 * costs.x_bytes() + 2 * costs.step_bytes() + costs.product_bytes());
    for (const char* name : {"bmm.dc", "bmm.db"})
        scan_kernel(writer, name, costs.product(), costs.product_bytes() + 4 * costs.b_bytes());
    return made;
}

/// Everything between the gradient of the output and those of the convolution's output, gate and steps, which are
/// written in place.
void scan_gradients(Writer& writer, const ScanCosts& costs, const MambaDimensions& mamba) {
    const Slot raw_steps = writer.make("scan.raw_steps", costs.wide(mamba.scan_heads));
    const std::vector<Slot> steps = sum_steps(writer, costs);
    const Slot products = multiply_chunks(writer, costs);
    const ChunkStates states = states_before_chunks(writer, costs, DataType::fp32);
    const Slot ungated_gradient = writer.make("scan.ungated_gradient", costs.wide(mamba.scan_inner));
    scan_kernel(writer, "chunk_scan.dz", 0, 6 * costs.x_bytes());
    const std::vector<Slot> narrow = state_gradients(writer, costs, states.before);
    const std::vector<Slot> made = operand_gradients(writer, costs);
    const Slot sums_gradient = writer.make("scan.sums_gradient", costs.steps(), DataType::fp32);
    scan_kernel(writer, "chunk_scan.dsums", costs.inside_chunks(),
                2 * costs.x_bytes() + 3 * costs.step_bytes() + costs.product_bytes());
    scan_kernel(writer, "cumsum.backward", 0, 4 * costs.step_bytes());
    for (const std::vector<Slot>& slots :
         {made, narrow, steps, {sums_gradient, ungated_gradient, products, raw_steps, states.last}})
        for (Slot slot : slots) writer.script.drop(slot);
}

void small_gradients(Writer& writer, const MambaDimensions& mamba) {
    writer.accumulate_small_gradient("conv1d.weight", {mamba.convolved, 1, MambaDimensions::kTaps});
    writer.accumulate_small_gradient("conv1d.bias", {mamba.convolved});
    writer.script.part(Part::mixer_scan);
    for (const char* name : {"A_log", "D", "dt_bias"}) writer.accumulate_small_gradient(name, {mamba.heads});
}

}  // namespace

MambaScan mamba_scan_forward(Writer& writer, const MambaDimensions& mamba, Slot input) {
    ScriptBuilder& script = writer.script;
    const ScanCosts costs(writer, mamba);
    MambaScan scan;
    script.part(Part::mixer_scan);
    const std::vector<Slot> vectors = small_vectors(writer, mamba);
    const Slot convolved = convolve(writer, costs, mamba);
    const std::vector<Slot> steps = sum_steps(writer, costs);
    const ChunkStates states = states_before_chunks(writer, costs, DataType::bf16);
    const Slot products = multiply_chunks(writer, costs);
    scan.output = writer.make("scan.output", costs.wide(mamba.scan_inner));
    const Slot ungated = writer.make("scan.ungated", costs.wide(mamba.scan_inner));
    scan_kernel(
        writer, "chunk_scan", costs.inside_chunks() + costs.through_states(),
        4 * costs.x_bytes() + costs.b_bytes() + 2 * costs.step_bytes() + costs.state_bytes() + costs.product_bytes());
    script.drop(products);
    scan.input = script.save(input);
    scan.ungated = script.save(ungated);
    for (Slot slot : vectors) {
        scan.small.push_back(script.save(slot));
        script.drop(slot);
    }
    for (Slot slot : {ungated, states.before, states.last, convolved, steps[0], steps[1]}) script.drop(slot);
    return scan;
}

Slot mamba_scan_backward(Writer& writer, const MambaDimensions& mamba, const MambaScan& scan, Slot gradient) {
    ScriptBuilder& script = writer.script;
    const ScanCosts costs(writer, mamba);
    script.part(Part::mixer_scan);
    for (SavedIndex saved : {scan.input, scan.ungated}) script.read(saved);
    for (SavedIndex saved : scan.small) script.read(saved);
    const Slot convolved = convolve(writer, costs, mamba);
    const Slot input_gradient = writer.make("scan.input_gradient", costs.wide(mamba.scan_in_width));
    const Slot convolved_gradient = writer.make("conv1d.output_gradient", costs.wide(mamba.scan_convolved));
    scan_gradients(writer, costs, mamba);
    script.part(Part::mixer_conv);
    writer.memory_kernel("conv1d.backward", 3 * costs.convolved_bytes());
    for (Slot slot : {convolved_gradient, convolved, gradient}) script.drop(slot);
    small_gradients(writer, mamba);
    for (SavedIndex saved : {scan.input, scan.ungated}) script.forget(saved);
    for (SavedIndex saved : scan.small) script.forget(saved);
    return input_gradient;
}

}  // namespace stowage::layers
