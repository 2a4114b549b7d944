#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "scenarios/types/model.hpp"

namespace stowage::reader {

/// What is wrong with a pattern, in one sentence.
struct BadPattern {
    std::string reason;
};

/// Megatron's list expressions such as `([0]*3+[1]*58)`: lists of 0 and 1, joined by +, repeated by *.
/// Result: one answer for each layer, or what is wrong.
/// Source: Megatron-LM, training/arguments.py: the text is evaluated as Python.
std::variant<std::vector<bool>, BadPattern> evaluate_layer_list(std::string_view text);

/// A hybrid model, layer by layer. Each layer is one half: a mixer or what follows one.
struct HybridPattern {
    std::vector<types::Mixer> mixers;
    std::vector<types::FeedForward> feed_forward;
    std::vector<std::size_t> stages;  ///< layers of each pipeline stage; one stage: the pattern does not say
    std::vector<types::Mixer> mtp_mixers;
    std::vector<types::FeedForward> mtp_feed_forward;
    std::size_t mtp_depths = 0;
};

/// Megatron's hybrid patterns such as `M-M*|ME/*E/*E`: M Mamba, G gated delta net, * attention, - MLP, E experts;
/// | the next pipeline stage; after each / one multi-token-prediction layer, all alike.
/// Source: Megatron-LM, core/models/hybrid/hybrid_layer_allocation.py.
std::variant<HybridPattern, BadPattern> parse_hybrid_pattern(std::string_view text);

}  // namespace stowage::reader
