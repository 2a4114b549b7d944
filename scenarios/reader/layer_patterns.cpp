#include "scenarios/reader/layer_patterns.hpp"

#include <algorithm>
#include <cctype>
#include <cstdint>
#include <optional>
#include <utility>

#include "scenarios/reader/diagnostics.hpp"

namespace stowage::reader {
namespace {

constexpr std::size_t kMostLayers = 100'000;

/// A recursive-descent evaluation: sum of products of lists, numbers and sums in brackets.
class ListExpression {
public:
    explicit ListExpression(std::string_view text) : text_(text) {}

    std::variant<std::vector<bool>, BadPattern> evaluate() {
        Term result = sum(0);
        skip_spaces();
        if (reason_.empty() && at_ < text_.size()) fail(std::string("'") + text_[at_] + "' is not expected here");
        if (reason_.empty() && !result.is_list) fail("a number, expected a list such as [0]*3+[1]*58");
        if (!reason_.empty()) return BadPattern{reason_};
        return std::move(result.layers);
    }

private:
    struct Term {
        bool is_list = false;
        std::vector<bool> layers;
        std::size_t number = 0;
    };

    void skip_spaces() {
        while (at_ < text_.size() && std::isspace(static_cast<unsigned char>(text_[at_])) != 0) ++at_;
    }

    bool take(char letter) {
        skip_spaces();
        if (at_ == text_.size() || text_[at_] != letter) return false;
        ++at_;
        return true;
    }

    Term sum(int depth) {
        Term total = product(depth);
        while (reason_.empty() && take('+')) {
            const Term next = product(depth);
            if (!reason_.empty()) break;
            if (!total.is_list || !next.is_list) return fail("'+' joins lists");
            total.layers.insert(total.layers.end(), next.layers.begin(), next.layers.end());
            if (total.layers.size() > kMostLayers) return fail("more than 100000 layers");
        }
        return total;
    }

    Term product(int depth) {
        Term left = factor(depth);
        while (reason_.empty() && take('*')) {
            Term right = factor(depth);
            if (!reason_.empty()) break;
            if (left.is_list == right.is_list) return fail("'*' repeats a list by a number");
            left = left.is_list ? repeat(left.layers, right.number) : repeat(right.layers, left.number);
        }
        return left;
    }

    Term repeat(const std::vector<bool>& layers, std::size_t times) {
        if (layers.size() * times > kMostLayers) return fail("more than 100000 layers");
        Term result{true, {}, 0};
        for (std::size_t i = 0; i < times; ++i) result.layers.insert(result.layers.end(), layers.begin(), layers.end());
        return result;
    }

    Term factor(int depth) {
        constexpr int kDeepest = 50;
        if (depth == kDeepest) return fail("brackets inside brackets, too deep");
        if (take('(')) {
            Term inside = sum(depth + 1);
            if (reason_.empty() && !take(')')) return fail("a '(' without its ')'");
            return inside;
        }
        if (take('[')) return list();
        const auto value = number();
        if (!value)
            return fail(at_ == text_.size() ? "it ends too early"
                                            : std::string("'") + text_[at_] + "' is not expected here");
        return Term{false, {}, *value};
    }

    Term list() {
        Term result{true, {}, 0};
        while (!take(']')) {
            const auto value = number();
            if (!value || *value > 1) return fail("a list holds 0 and 1 only");
            result.layers.push_back(*value == 1);
            if (!take(',') && (at_ == text_.size() || text_[at_] != ']')) return fail("a '[' without its ']'");
        }
        return result;
    }

    std::optional<std::size_t> number() {
        skip_spaces();
        const std::size_t start = at_;
        std::size_t value = 0;
        while (at_ < text_.size() && std::isdigit(static_cast<unsigned char>(text_[at_])) != 0)
            value = std::min(10 * value + static_cast<std::size_t>(text_[at_++] - '0'), kMostLayers + 1);
        return at_ == start ? std::nullopt : std::optional(value);
    }

    Term fail(std::string reason) {
        if (reason_.empty()) reason_ = std::move(reason);
        return {};
    }

    std::string_view text_;
    std::size_t at_ = 0;
    std::string reason_;
};

struct HalfLayer {
    types::Mixer mixer = types::Mixer::none;
    types::FeedForward feed_forward = types::FeedForward::none;
};

std::optional<HalfLayer> half_layer(char letter) {
    using types::FeedForward;
    using types::Mixer;
    switch (letter) {
        case 'M': return HalfLayer{Mixer::mamba, FeedForward::none};
        case 'G': return HalfLayer{Mixer::gated_delta_net, FeedForward::none};
        case '*': return HalfLayer{Mixer::attention, FeedForward::none};
        case '-': return HalfLayer{Mixer::none, FeedForward::dense};
        case 'E': return HalfLayer{Mixer::none, FeedForward::moe};
        default: return std::nullopt;
    }
}

std::string unknown_letter(char letter) {
    const std::string name = "the letter " + in_quotes(std::string(1, letter));
    // Groups of layers, Megatron's other attentions and its fused layers.
    if (std::string_view("[]CDHW+").find(letter) != std::string_view::npos)
        return name + " is known, but this version cannot plan it yet";
    return name + "; layers are written with M, G, *, -, E, stages end with |, multi-token prediction follows /";
}

std::vector<std::string_view> split_at(std::string_view text, char separator) {
    std::vector<std::string_view> parts;
    for (std::size_t start = 0;;) {
        const std::size_t end = text.find(separator, start);
        parts.push_back(text.substr(start, end == std::string_view::npos ? end : end - start));
        if (end == std::string_view::npos) return parts;
        start = end + 1;
    }
}

/// Appends the layers of letters. Result: what is wrong with them, empty if nothing.
std::string append(std::string_view letters, std::vector<types::Mixer>& mixers,
                   std::vector<types::FeedForward>& feed_forward) {
    for (const char letter : letters) {
        const auto half = half_layer(letter);
        if (!half) return unknown_letter(letter);
        mixers.push_back(half->mixer);
        feed_forward.push_back(half->feed_forward);
    }
    return {};
}

}  // namespace

std::variant<std::vector<bool>, BadPattern> evaluate_layer_list(std::string_view text) {
    return ListExpression(text).evaluate();
}

std::variant<HybridPattern, BadPattern> parse_hybrid_pattern(std::string_view text) {
    HybridPattern pattern;
    const std::vector<std::string_view> parts = split_at(text, '/');
    for (const std::string_view stage : split_at(parts.front(), '|')) {
        if (std::string reason = append(stage, pattern.mixers, pattern.feed_forward); !reason.empty())
            return BadPattern{std::move(reason)};
        pattern.stages.push_back(stage.size());
    }
    if (pattern.mixers.empty()) return BadPattern{"a pattern without layers"};
    if (pattern.mixers.size() > kMostLayers) return BadPattern{"more than 100000 layers"};
    if (std::all_of(parts.begin() + 1, parts.end(), [](std::string_view part) { return part.empty(); }))
        return pattern;  // as Megatron: a / with nothing after it
    for (auto part = parts.begin() + 2; part < parts.end(); ++part)
        if (*part != parts[1]) return BadPattern{"the multi-token-prediction layers differ; all must be alike"};
    if (std::string reason = append(parts[1], pattern.mtp_mixers, pattern.mtp_feed_forward); !reason.empty())
        return BadPattern{std::move(reason)};
    pattern.mtp_depths = parts.size() - 1;
    return pattern;
}

}  // namespace stowage::reader
