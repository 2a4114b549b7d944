#include "planner/memory/allocator_config.hpp"

#include <algorithm>
#include <bit>
#include <cctype>
#include <charconv>
#include <optional>
#include <span>
#include <utility>

namespace stowage::memory {
namespace {

constexpr std::int64_t kMiB = 1LL << 20;
constexpr std::int64_t kSmallestLargeSegment = 10;  ///< MiB, not itself allowed
constexpr std::int64_t kMostRegisterThreads = 128;
/// What a number of MiB is cut off at: more than any device has, and in bytes still a number.
constexpr std::int64_t kMostMiB = std::numeric_limits<std::int64_t>::max() / kMiB;

struct Token {
    std::string text;
    std::size_t position = 0;
};

/// Words and the signs `,:[]`; white space is left out, also within a word.
std::vector<Token> tokens_of(std::string_view text) {
    std::vector<Token> tokens;
    bool in_word = false;
    for (std::size_t i = 0; i < text.size(); ++i) {
        const char letter = text[i];
        if (std::isspace(static_cast<unsigned char>(letter)) != 0) continue;
        const bool sign = letter == ',' || letter == ':' || letter == '[' || letter == ']';
        if (sign || !in_word) tokens.push_back({std::string{}, i});
        tokens.back().text += letter;
        in_word = !sign;
    }
    return tokens;
}

using Problem = std::optional<AllocatorConfigError>;

class Parser {
public:
    explicit Parser(std::string_view text) : tokens_(tokens_of(text)), end_(text.size()) {}

    std::variant<ParsedAllocatorConfig, AllocatorConfigError> parse() {
        // The size of a large segment bounds other values, wherever it stands.
        for (at_ = 0; at_ < tokens_.size(); ++at_) {
            if (tokens_[at_].text != "large_segment_size_mb") continue;
            if (Problem problem = read_large_segment()) return *problem;
        }
        result_.config.max_non_split_rounding = result_.config.large_segment;
        for (at_ = 0; at_ < tokens_.size(); ++at_) {
            if (Problem problem = read_key()) return *problem;
            if (++at_ < tokens_.size() && tokens_[at_].text != ",")
                return *error("a comma was expected here", "write key:value,key:value");
        }
        return result_;
    }

private:
    struct Key {
        std::string_view name;
        Problem (Parser::*read)();
        bool without_effect = false;
    };
    static std::span<const Key> keys();

    [[nodiscard]] Problem error(std::string message, std::string hint) const {
        const std::size_t position = at_ < tokens_.size() ? tokens_[at_].position : end_;
        return AllocatorConfigError{position, std::move(message), std::move(hint)};
    }

    Problem read_key() {
        const std::string name = tokens_[at_].text;
        const std::span<const Key> known = keys();
        const auto key = std::find_if(known.begin(), known.end(), [&](const Key& one) { return one.name == name; });
        if (key == known.end())
            return error("'" + name + "' is no key of the allocator of PyTorch 2.11", near_key(name));
        if (Problem problem = (this->*(key->read))()) return problem;
        if (key->without_effect) result_.without_effect.push_back(name);
        return std::nullopt;
    }

    /// The key that shares the longest beginning, or all of them.
    static std::string near_key(std::string_view name) {
        std::string_view best;
        std::size_t most = 3;
        std::string all;
        for (const Key& key : keys()) {
            all += (all.empty() ? "" : ", ") + std::string(key.name);
            const std::size_t shared = static_cast<std::size_t>(
                std::mismatch(name.begin(), name.end(), key.name.begin(), key.name.end()).first - name.begin());
            if (shared <= most) continue;
            most = shared;
            best = key.name;
        }
        return best.empty() ? "known keys: " + all : "did you mean '" + std::string(best) + "'?";
    }

    /// Goes on to the value behind the key.
    Problem expect_value() {
        const std::string name = tokens_[at_].text;
        if (++at_ >= tokens_.size() || tokens_[at_].text != ":")
            return error("'" + name + "' has no value", "write " + name + ":VALUE");
        ++at_;
        return expect_word(name);
    }

    Problem expect_word(const std::string& name) {
        static constexpr std::string_view kSigns = ",:]";
        if (at_ >= tokens_.size() || kSigns.find(tokens_[at_].text) != std::string_view::npos)
            return error("'" + name + "' has no value", "write " + name + ":VALUE");
        return std::nullopt;
    }

    Problem read_flag(bool& flag) {
        if (Problem problem = expect_value()) return problem;
        const std::string& text = tokens_[at_].text;
        if (text != "True" && text != "False")
            return error("'" + text + "' is neither True nor False", "write True or False");
        flag = text == "True";
        return std::nullopt;
    }

    Problem read_ignored_flag() {
        bool ignored = false;
        return read_flag(ignored);
    }

    Problem whole_number(std::int64_t& number) const {
        const std::string& text = tokens_[at_].text;
        const char* end = text.data() + text.size();
        const auto [rest, code] = std::from_chars(text.data(), end, number);
        if (code == std::errc{} && rest == end && number >= 0) return std::nullopt;
        const bool has_unit = code == std::errc{} && rest != text.data() && number >= 0;
        return error("'" + text + "' is no whole number",
                     has_unit ? "write " + std::to_string(number) : "write digits alone, such as 512");
    }

    Problem read_whole_number(std::int64_t& number) {
        if (Problem problem = expect_value()) return problem;
        return whole_number(number);
    }

    Problem read_mebibytes(Bytes& bytes, std::int64_t least) {
        const std::string name = tokens_[at_].text;
        std::int64_t number = 0;
        if (Problem problem = read_whole_number(number)) return problem;
        if (number < least)
            return error(name + " is at least " + std::to_string(least),
                         "write " + name + ":" + std::to_string(least) + " or more");
        bytes = Bytes{std::min(number, kMostMiB) * kMiB};
        return std::nullopt;
    }

    Problem read_part(double& part, bool with_ends) {
        const std::string name = tokens_[at_].text;
        if (Problem problem = expect_value()) return problem;
        const std::string& text = tokens_[at_].text;
        const char* end = text.data() + text.size();
        const auto [rest, code] = std::from_chars(text.data(), end, part);
        if (code != std::errc{} || rest != end)
            return error("'" + text + "' is no number", "write a number such as 0.8");
        if (with_ends ? part >= 0 && part <= 1 : part > 0 && part < 1) return std::nullopt;
        return error(name + (with_ends ? " lies from 0 to 1" : " lies between 0 and 1"), "write a number such as 0.8");
    }

    Problem read_large_segment() { return read_mebibytes(result_.config.large_segment, kSmallestLargeSegment + 1); }
    Problem read_max_split() {
        return read_mebibytes(result_.config.max_split_size, result_.config.large_segment.count / kMiB);
    }
    Problem read_max_rounding() {
        return read_mebibytes(result_.config.max_non_split_rounding, result_.config.large_segment.count / kMiB);
    }
    Problem read_threshold() { return read_part(result_.config.garbage_collection_threshold, false); }
    Problem read_fraction() { return read_part(result_.config.per_process_memory_fraction, true); }
    Problem read_expandable() { return read_flag(result_.config.expandable_segments); }
    Problem read_reuse() { return read_flag(result_.config.graph_capture_record_stream_reuse); }

    Problem read_backend() {
        if (Problem problem = expect_value()) return problem;
        const std::string& text = tokens_[at_].text;
        if (text == "native") return std::nullopt;
        if (text == "cudaMallocAsync")
            return error("backend:cudaMallocAsync is not supported: CUDA, not PyTorch, then decides where memory lies",
                         "write backend:native, the default");
        return error("'" + text + "' is no backend of the allocator", "known: native, cudaMallocAsync");
    }

    Problem read_threads() {
        std::int64_t number = 0;
        if (Problem problem = read_whole_number(number)) return problem;
        if (number > 0 && std::has_single_bit(static_cast<std::uint64_t>(number)) && number <= kMostRegisterThreads)
            return std::nullopt;
        return error("pinned_num_register_threads is a power of two up to 128", "write 1, 2, 4, ... or 128");
    }

    Problem read_pinned_segment() {
        Bytes ignored;
        return read_mebibytes(ignored, 1);
    }

    Problem read_divisions() {
        if (Problem problem = expect_value()) return problem;
        if (tokens_[at_].text == "[") return read_division_list();
        std::int64_t number = 0;
        if (Problem problem = whole_number(number)) return problem;
        if (number == 0 || !std::has_single_bit(static_cast<std::uint64_t>(number)))
            return error("a number of divisions is a power of two", "write 1, 2, 4, 8, ...");
        result_.config.roundup_power2_divisions = PowerOfTwoDivisions{number};
        return std::nullopt;
    }

    /// [256:1,512:2,>:4]: what is named first holds below it too, what is not named keeps its number, and '>' stands
    /// for all above the one before it.
    Problem read_division_list() {
        std::array<std::int64_t, PowerOfTwoDivisions::kIntervals>& steps =
            result_.config.roundup_power2_divisions.steps;
        std::optional<std::size_t> last;
        for (++at_; at_ < tokens_.size() && tokens_[at_].text != "]"; ++at_) {
            std::optional<std::size_t> interval;
            if (Problem problem = read_interval(interval)) return problem;
            std::int64_t number = 0;
            if (Problem problem = read_step(number)) return problem;
            if (!interval) {
                std::fill(steps.begin() + static_cast<std::ptrdiff_t>(last.value_or(0) + 1), steps.end(), number);
            } else {
                if (!last) std::fill_n(steps.begin(), *interval, number);
                steps[*interval] = number;
                last = interval;
            }
            if (at_ + 1 >= tokens_.size() || tokens_[at_ + 1].text == "]") continue;
            ++at_;
            if (tokens_[at_].text != ",") return error("a comma was expected here", "write [256:1,512:2,>:4]");
        }
        if (at_ < tokens_.size()) return std::nullopt;
        return error("the list of divisions has no end", "write [256:1,512:2,>:4]");
    }

    /// Nothing: '>'.
    Problem read_interval(std::optional<std::size_t>& interval) {
        if (tokens_[at_].text == ">") return std::nullopt;
        std::int64_t mebibytes = 0;
        if (Problem problem = whole_number(mebibytes)) return problem;
        if (mebibytes == 0 || !std::has_single_bit(static_cast<std::uint64_t>(mebibytes)))
            return error("an interval of sizes begins at a power of two of MiB", "write 1, 2, 4, ... or >");
        const std::size_t power = std::bit_width(static_cast<std::uint64_t>(mebibytes)) - std::size_t{1};
        interval = std::min(power, PowerOfTwoDivisions::kIntervals - 1);
        return std::nullopt;
    }

    Problem read_step(std::int64_t& number) {
        if (Problem problem = expect_value()) return problem;
        if (Problem problem = whole_number(number)) return problem;
        if (number == 0 || std::has_single_bit(static_cast<std::uint64_t>(number))) return std::nullopt;
        return error("a number of divisions is 0 or a power of two", "write 0, 1, 2, 4, 8, ...");
    }

    std::vector<Token> tokens_;
    std::size_t end_;
    std::size_t at_ = 0;
    ParsedAllocatorConfig result_;
};

std::span<const Parser::Key> Parser::keys() {
    static constexpr std::array kKeys{
        Key{"backend", &Parser::read_backend},
        Key{"expandable_segments", &Parser::read_expandable},
        Key{"garbage_collection_threshold", &Parser::read_threshold},
        Key{"graph_capture_record_stream_reuse", &Parser::read_reuse},
        Key{"large_segment_size_mb", &Parser::read_large_segment},
        Key{"max_non_split_rounding_mb", &Parser::read_max_rounding},
        Key{"max_split_size_mb", &Parser::read_max_split},
        Key{"per_process_memory_fraction", &Parser::read_fraction},
        Key{"pinned_num_register_threads", &Parser::read_threads, true},
        Key{"pinned_reserve_segment_size_mb", &Parser::read_pinned_segment, true},
        Key{"pinned_use_background_threads", &Parser::read_ignored_flag, true},
        Key{"pinned_use_cuda_host_register", &Parser::read_ignored_flag, true},
        Key{"release_lock_on_cudamalloc", &Parser::read_ignored_flag, true},
        Key{"roundup_power2_divisions", &Parser::read_divisions},
    };
    return kKeys;
}

}  // namespace

std::int64_t PowerOfTwoDivisions::of(Bytes size) const {
    constexpr std::size_t kFirst = 21;  // the first interval ends at 2 MiB = 2^21
    const std::size_t bits = std::bit_width(static_cast<std::uint64_t>(size.count));
    return steps[bits <= kFirst ? 0 : std::min(bits - kFirst, kIntervals - 1)];
}

std::variant<ParsedAllocatorConfig, AllocatorConfigError> parse_allocator_config(std::string_view text) {
    return Parser(text).parse();
}

}  // namespace stowage::memory
