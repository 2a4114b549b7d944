#pragma once

// A linear's operands under the scenario's precision.
//
// In bf16 and fp16 a GEMM reads its tensors as they are, and the linear saves its input itself. In FP8 every operand is
// first written as FP8, once for the GEMM that sums along its rows and once, transposed, for the one that sums along
// its columns (the weight gradient); of an input only what the weight gradient needs is kept, one byte an element:
//   delayed, tensorwise   the transposed copy before Blackwell, whose GEMMs then read any layout; under sequence
//                         parallelism the plain copy, because gathering cannot transpose
//   blockwise             the copy along columns, with an fp32 scale for each 128 elements
//   mxfp8                 the same with a one-byte scale for each 32 elements
// A linear told to save the original input keeps the 16-bit tensor and converts it again in its backward.
// One scale for a whole tensor (delayed, tensorwise) is four bytes and left out.
// Source: Transformer Engine, pytorch/module/linear.py, layernorm_linear.py and grouped_linear.py; pytorch/tensor.
//
// Tested by: tests/planner/layers/precision_test.cpp.

#include <optional>
#include <string>
#include <vector>

#include "planner/layers/writer.hpp"

namespace stowage::layers {

/// What is asked of a linear's input.
struct OperandUse {
    bool gathered = false;       ///< it is gathered over the tensor ranks for the GEMM
    bool save_original = false;  ///< the 16-bit tensor is saved, whatever the precision
};

/// An input on its way through a GEMM.
struct Operand {
    Slot source{};
    std::vector<Slot> working;   ///< FP8 copies that end with the GEMM
    std::optional<Slot> kept;    ///< the FP8 copy that is saved
    std::optional<Slot> scales;  ///< of the kept copy
};

/// What a linear saved of its input.
struct SavedOperand {
    std::string name;
    std::int64_t rows = 0;
    std::int64_t width = 0;
    SavedIndex data{};
    std::optional<SavedIndex> scales;
    bool original = true;
};

/// Converts `source` [rows, width] as the precision asks; nothing happens in 16 bits.
Operand make_operand(Writer& writer, const std::string& name, Slot source, std::int64_t rows, std::int64_t width,
                     OperandUse use = {});
/// Saves what the backward needs and drops the operand's own copies; `source` is not dropped.
SavedOperand save_operand(Writer& writer, const std::string& name, const Operand& operand, std::int64_t rows,
                          std::int64_t width, std::optional<Module> group);
void read_operand(Writer& writer, const SavedOperand& saved);
void forget_operand(Writer& writer, const SavedOperand& saved);
/// For the weight gradient: the FP8 copy of an input that was saved as the original; drop what it returns afterwards.
std::vector<Slot> convert_saved(Writer& writer, const SavedOperand& saved);
/// FP8 copies of a gradient [rows, width] for both GEMMs of a backward; drop what it returns afterwards.
std::vector<Slot> convert_gradient(Writer& writer, const std::string& name, std::int64_t rows, std::int64_t width);
void drop_all(Writer& writer, const std::vector<Slot>& slots);

/// A whole operand [rows, width] as it is gathered: allocated in the operand's precision.
Slot make_gathered(Writer& writer, const std::string& name, std::int64_t rows, std::int64_t width);
/// Bytes of an operand of this many elements where it is sent or gathered: scales included.
std::int64_t operand_bytes(const Writer& writer, std::int64_t elements);

}  // namespace stowage::layers
