#include "scenarios/types/stages.hpp"

#include <algorithm>
#include <cctype>
#include <utility>

#include "scenarios/types/check.hpp"

namespace stowage::types {
namespace {

constexpr std::size_t kLongestLayout = 1'000'000;  // letters; far above any pipeline
constexpr const char* kTooLong = "more than a million letters";

// -------------------------------------------------------------------------------------------------- layout strings

/// Expands groups and repetitions.
class LayoutString {
public:
    explicit LayoutString(const std::string& text) {
        for (const char letter : text)
            if (std::isspace(static_cast<unsigned char>(letter)) == 0 && letter != ',') text_ += letter;
    }

    std::variant<std::string, NoStages> expand() {
        std::string letters = sequence(0);
        if (reason_.empty() && at_ < text_.size()) reason_ = "a ')' without its '('";
        if (!reason_.empty()) return NoStages{reason_};
        return letters;
    }

private:
    std::string sequence(int depth) {
        std::string letters;
        while (reason_.empty() && at_ < text_.size() && text_[at_] != ')') {
            letters += repeated(unit(depth));
            if (letters.size() > kLongestLayout) return fail(kTooLong);
        }
        return letters;
    }

    std::string unit(int depth) {
        constexpr int kDeepest = 50;
        const char letter = text_[at_++];
        if (letter == '(') {
            if (depth == kDeepest) return fail("groups inside groups, too deep");
            std::string inside = sequence(depth + 1);
            if (!reason_.empty()) return {};
            if (at_ == text_.size()) return fail("a '(' without its ')'");
            ++at_;
            return inside;
        }
        const bool ascii = static_cast<unsigned char>(letter) < 0x80;  // else a part of a letter
        if (std::string_view("EtmL|").find(letter) == std::string_view::npos)
            return fail(std::string("the letter '") + (ascii ? letter : '?') +
                        "'; stages are written with E, t, m, L, |, (), *");
        return {letter};
    }

    std::string repeated(const std::string& unit) {
        if (!reason_.empty() || at_ == text_.size() || text_[at_] != '*') return unit;
        ++at_;
        const std::size_t digits = at_;
        std::size_t times = 0;
        while (at_ < text_.size() && std::isdigit(static_cast<unsigned char>(text_[at_])) != 0)
            times = std::min(10 * times + static_cast<std::size_t>(text_[at_++] - '0'), kLongestLayout + 1);
        if (at_ == digits) return fail("a '*' without the number of times");
        if (times * unit.size() > kLongestLayout) return fail(kTooLong);
        std::string letters;
        for (std::size_t i = 0; i < times; ++i) letters += unit;
        return letters;
    }

    std::string fail(std::string reason) {
        reason_ = std::move(reason);
        return {};
    }

    std::string text_;
    std::size_t at_ = 0;
    std::string reason_;
};

/// Where the letters of one stage stand in the order E t m L.
bool in_order(const std::string& letters) {
    constexpr std::string_view kOrder = "EtmL";
    return std::is_sorted(letters.begin(), letters.end(),
                          [&](char left, char right) { return kOrder.find(left) < kOrder.find(right); });
}

StageContents contents_of(const std::string& letters, std::int64_t first_layer) {
    const auto count = [&](char letter) { return std::count(letters.begin(), letters.end(), letter); };
    return {.embedding = count('E') > 0,
            .first_layer = first_layer,
            .layers = count('t'),
            .mtp_layers = count('m'),
            .loss = count('L') > 0};
}

std::string number(std::int64_t value) { return std::to_string(value); }

/// Reasons why letters do not make a pipeline of this model.
std::string fault(const std::vector<std::string>& stages, const ParallelLayout& layout, const Model& model) {
    const std::int64_t wanted = layout.pipeline_model_parallel_size * layout.num_virtual_stages_per_pipeline_rank;
    if (std::ssize(stages) != wanted)
        return "the layout has " + number(std::ssize(stages)) + " stages, expected " + number(wanted) +
               " (pipeline ranks x virtual stages)";
    std::string all;
    for (const std::string& stage : stages) {
        if (!in_order(stage)) return "the stage '" + stage + "' is not in the order E, t, m, L";
        all += stage;
    }
    const auto count = [&](char letter) { return std::count(all.begin(), all.end(), letter); };
    if (count('E') != 1 || stages.front().find('E') == std::string::npos)
        return "the embedding (E) is not exactly once, on the first stage";
    if (count('L') != 1 || stages.back().find('L') == std::string::npos)
        return "the loss (L) is not exactly once, on the last stage";
    if (count('t') != model.num_layers)
        return "the layout places " + number(count('t')) + " layers, the model has " + number(model.num_layers);
    if (count('m') != model.mtp_num_layers)
        return "the layout places " + number(count('m')) + " multi-token-prediction layers, the model has " +
               number(model.mtp_num_layers);
    return {};
}

StageTable rows_of(const std::vector<StageContents>& stages, std::int64_t ranks) {
    StageTable table;
    for (auto row = stages.begin(); row != stages.end(); row += ranks) table.emplace_back(row, row + ranks);
    return table;
}

std::variant<StageTable, NoStages> literal(const ParallelLayout& layout, const Model& model) {
    auto parsed = parse_stage_letters(layout.pipeline_model_parallel_layout);
    if (auto* no = std::get_if<NoStages>(&parsed)) return *no;
    const auto& letters = std::get<std::vector<std::string>>(parsed);
    if (std::string reason = fault(letters, layout, model); !reason.empty()) return NoStages{reason};
    std::vector<StageContents> stages;
    std::int64_t layer = 0;
    for (const std::string& stage : letters) {
        stages.push_back(contents_of(stage, layer));
        layer += stages.back().layers;
    }
    return rows_of(stages, layout.pipeline_model_parallel_size);
}

// ---------------------------------------------------------------------------------------------------- even division

/// Layers of each rank; a negative count says that they do not divide.
struct RankLayers {
    std::vector<std::int64_t> counts;
    std::string reason;
};

RankLayers with_given_ends(const ParallelLayout& layout, std::int64_t layers) {
    const auto& first = layout.decoder_first_pipeline_num_layers;
    const auto& last = layout.decoder_last_pipeline_num_layers;
    const std::int64_t ranks = layout.pipeline_model_parallel_size;
    const std::int64_t free_ranks = ranks - (first ? 1 : 0) - (last ? 1 : 0);
    const std::int64_t free_layers = layers - first.value_or(0) - last.value_or(0);
    const bool fits = free_ranks >= 0 && free_layers >= 0 && (free_ranks > 0 || free_layers == 0);
    if (!fits || (free_ranks > 0 && free_layers % free_ranks != 0))
        return {{}, "the layers that the given first and last stage leave do not divide over the stages between"};
    RankLayers result;
    result.counts.assign(static_cast<std::size_t>(ranks), free_ranks > 0 ? free_layers / free_ranks : 0);
    if (first) result.counts.front() = *first;
    if (last) result.counts.back() = *last;
    return result;
}

/// What each rank counts, the embedding and the loss among it where they are to count.
RankLayers even(const ParallelLayout& layout, std::int64_t layers) {
    const std::int64_t ranks = layout.pipeline_model_parallel_size;
    const std::int64_t extra =
        (layout.account_for_embedding_in_pipeline_split ? 1 : 0) + (layout.account_for_loss_in_pipeline_split ? 1 : 0);
    if ((layers + extra) % ranks != 0)
        return {{},
                "the " + number(layers) + " layers" + (extra > 0 ? ", with what counts as one," : "") +
                    " do not divide over " + number(ranks) + " pipeline stages"};
    return {std::vector<std::int64_t>(static_cast<std::size_t>(ranks), (layers + extra) / ranks), {}};
}

std::variant<StageTable, NoStages> divided(const ParallelLayout& layout, const Model& model) {
    const std::int64_t ranks = layout.pipeline_model_parallel_size;
    const std::int64_t rows = layout.num_virtual_stages_per_pipeline_rank;
    const bool given = layout.decoder_first_pipeline_num_layers || layout.decoder_last_pipeline_num_layers;
    const RankLayers per_rank = given ? with_given_ends(layout, model.num_layers) : even(layout, model.num_layers);
    if (!per_rank.reason.empty()) return NoStages{per_rank.reason};
    for (const std::int64_t count : per_rank.counts)
        if (count % rows != 0)
            return NoStages{"the " + number(count) + " layers of a pipeline rank do not divide over " + number(rows) +
                            " virtual stages"};
    const bool embedding_counts = !given && layout.account_for_embedding_in_pipeline_split;
    const bool loss_counts = !given && layout.account_for_loss_in_pipeline_split;
    std::vector<StageContents> stages;
    std::int64_t layer = 0;
    for (std::int64_t stage = 0; stage < ranks * rows; ++stage) {
        const bool first = stage == 0;
        const bool last = stage + 1 == ranks * rows;
        std::int64_t layers = per_rank.counts[static_cast<std::size_t>(stage % ranks)] / rows;
        layers -= (first && embedding_counts ? 1 : 0) + (last && loss_counts ? 1 : 0);
        if (layers < 0) return NoStages{"a stage would have fewer than no layers"};
        stages.push_back({first, layer, layers, last ? model.mtp_num_layers : 0, last});
        layer += layers;
    }
    return rows_of(stages, ranks);
}

}  // namespace

std::variant<std::vector<std::string>, NoStages> parse_stage_letters(const std::string& layout) {
    auto expanded = LayoutString(layout).expand();
    if (auto* no = std::get_if<NoStages>(&expanded)) return *no;
    std::vector<std::string> stages(1);
    for (const char letter : std::get<std::string>(expanded)) {
        if (letter == '|')
            stages.emplace_back();
        else
            stages.back() += letter;
    }
    return stages;
}

std::variant<StageTable, NoStages> stage_table(const ParallelLayout& layout, const Model& model) {
    if (layout.pipeline_model_parallel_size < 1 || layout.num_virtual_stages_per_pipeline_rank < 1)
        return NoStages{"a pipeline has at least one stage"};
    return layout.pipeline_model_parallel_layout.empty() ? divided(layout, model) : literal(layout, model);
}

StageTable stages_of(const ParallelLayout& layout, const Model& model) {
    auto table = stage_table(layout, model);
    STOWAGE_CHECK(std::holds_alternative<StageTable>(table), "the layout places the layers");
    return std::get<StageTable>(std::move(table));
}

std::vector<std::int64_t> layers_per_rank(const StageTable& table) {
    std::vector<std::int64_t> counts(table.empty() ? 0 : table.front().size(), 0);
    for (const auto& row : table)
        for (std::size_t rank = 0; rank < row.size(); ++rank) counts[rank] += row[rank].layers;
    return counts;
}

}  // namespace stowage::types
