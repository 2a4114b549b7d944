#include "planner/layers/operand.hpp"

namespace stowage::layers {
namespace {

using types::Precision;

constexpr int kBlackwell = 100;
constexpr std::int64_t kMicroscaleBlock = 32;
constexpr std::int64_t kScaleBlock = 128;

bool block_scaled(const Writer& writer) {
    return writer.scenario.precision == Precision::fp8_blockwise || writer.scenario.precision == Precision::mxfp8;
}

/// Whether the GEMM along columns needs a second copy.
bool needs_transpose(const Writer& writer) {
    return block_scaled(writer) || writer.scenario.hardware.node.device.compute_capability < kBlackwell;
}

/// Scales of a tensor whose last block may be in part.
std::int64_t blocks(std::int64_t elements, std::int64_t size) { return (elements + size - 1) / size; }

/// An FP8 copy with its scales behind it, for as long as a GEMM runs.
Slot working_copy(Writer& writer, const std::string& name, std::int64_t elements) {
    return writer.make(name, {operand_bytes(writer, elements)}, DataType::fp8);
}

std::optional<Slot> make_scales(Writer& writer, const std::string& name, std::int64_t elements) {
    if (writer.scenario.precision == Precision::mxfp8)
        return writer.make(name, {blocks(elements, kMicroscaleBlock)}, DataType::uint8);
    if (writer.scenario.precision == Precision::fp8_blockwise)
        return writer.make(name, {blocks(elements, kScaleBlock)}, DataType::fp32);
    return std::nullopt;
}

/// Reads 16-bit elements and writes `copies` FP8 ones of each.
void convert(Writer& writer, const std::string& name, std::int64_t elements, std::int64_t copies) {
    writer.memory_kernel(name + ".to_fp8", 2 * elements + copies * operand_bytes(writer, elements));
}

}  // namespace

Operand make_operand(Writer& writer, const std::string& name, Slot source, std::int64_t rows, std::int64_t width,
                     OperandUse use) {
    Operand operand{source, {}, {}, {}};
    if (!writer.fp8()) return operand;
    const std::int64_t elements = rows * width;
    const bool plain_is_kept = !block_scaled(writer) && (use.gathered || !needs_transpose(writer));
    std::int64_t copies = 1;
    if (use.save_original || !plain_is_kept)
        operand.working.push_back(working_copy(writer, name + ".input_fp8_rows", elements));
    if (!use.save_original) {
        operand.kept = writer.make(name + ".input_fp8", {rows, width}, DataType::fp8);
        operand.scales = make_scales(writer, name + ".input_scales", elements);
        copies = plain_is_kept ? 1 : 2;
    }
    convert(writer, name + ".input", elements, copies);
    return operand;
}

SavedOperand save_operand(Writer& writer, const std::string& name, const Operand& operand, std::int64_t rows,
                          std::int64_t width, std::optional<Module> group) {
    SavedOperand saved{name, rows, width, {}, {}, !operand.kept};
    saved.data = writer.script.save(operand.kept.value_or(operand.source), group);
    if (operand.scales) {
        saved.scales = writer.script.save(*operand.scales, group);
        writer.script.drop(*operand.scales);
    }
    if (operand.kept) writer.script.drop(*operand.kept);
    drop_all(writer, operand.working);
    return saved;
}

void read_operand(Writer& writer, const SavedOperand& saved) {
    writer.script.read(saved.data);
    if (saved.scales) writer.script.read(*saved.scales);
}

void forget_operand(Writer& writer, const SavedOperand& saved) {
    writer.script.forget(saved.data);
    if (saved.scales) writer.script.forget(*saved.scales);
}

std::vector<Slot> convert_saved(Writer& writer, const SavedOperand& saved) {
    if (!writer.fp8() || !saved.original) return {};
    const std::int64_t elements = saved.rows * saved.width;
    const Slot copy = working_copy(writer, saved.name + ".input_fp8_columns", elements);
    convert(writer, saved.name + ".saved_input", elements, 1);
    return {copy};
}

std::vector<Slot> convert_gradient(Writer& writer, const std::string& name, std::int64_t rows, std::int64_t width) {
    if (!writer.fp8()) return {};
    const std::int64_t elements = rows * width;
    std::vector<Slot> copies{working_copy(writer, name + ".gradient_fp8_rows", elements)};
    if (needs_transpose(writer)) copies.push_back(working_copy(writer, name + ".gradient_fp8_columns", elements));
    convert(writer, name + ".gradient", elements, static_cast<std::int64_t>(copies.size()));
    return copies;
}

void drop_all(Writer& writer, const std::vector<Slot>& slots) {
    for (Slot slot : slots) writer.script.drop(slot);
}

Slot make_gathered(Writer& writer, const std::string& name, std::int64_t rows, std::int64_t width) {
    const Dimensions& dim = writer.dim;
    if (writer.fp8()) return working_copy(writer, name, rows * width);
    return writer.make(name, {rows / dim.micro_batch, dim.micro_batch, width});
}

std::int64_t operand_bytes(const Writer& writer, std::int64_t elements) {
    if (!writer.fp8()) return 2 * elements;
    return block_scaled(writer) ? elements + blocks(elements, kMicroscaleBlock) : elements;  // both scales: a 32nd
}

}  // namespace stowage::layers
