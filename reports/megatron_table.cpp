#include "reports/megatron_table.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <vector>

#include "reports/table.hpp"

namespace stowage::reports {
namespace {

constexpr std::string_view kTitle = "Activation Offload Summary (MB)";
constexpr double kMiB = 1024.0 * 1024.0;

std::string mib(std::int64_t bytes) { return fmt::format("{:.2f}", static_cast<double>(bytes) / kMiB); }

/// As Python centres text: an odd space goes to the left only if the width is odd, and spaces fill the right.
std::string centred(std::string_view text, std::size_t width) {
    if (text.size() >= width) return std::string(text);
    const std::size_t space = width - text.size();
    const std::size_t left = space / 2 + (space & width & 1U);
    return std::string(left, ' ') + std::string(text) + std::string(space - left, ' ');
}

/// Columns of one table: the modules that any rank has, by name, then the total.
class Columns {
public:
    explicit Columns(std::span<const SummaryStage> stages) {
        std::set<std::string> names;
        for (const SummaryStage& stage : stages) {
            ranks_ += stage.ranks;
            for (const auto& [module, bytes] : stage.bytes) names.insert(module);
        }
        modules_.assign(names.begin(), names.end());
        for (const std::string& module : modules_) width_ = std::max(width_, module.size() + 2);
        rank_width_ = std::max<std::size_t>(6, fmt::format("Rank {}", ranks_ - 1).size() + 2);
    }

    [[nodiscard]] const std::vector<std::string>& modules() const { return modules_; }
    [[nodiscard]] std::string header() const { return line("Rank", modules_, "Total"); }

    [[nodiscard]] std::string row(const std::string& label, const std::map<std::string, std::int64_t>& bytes) const {
        std::vector<std::string> cells;
        std::int64_t total = 0;
        for (const std::string& module : modules_) {
            const auto found = bytes.find(module);
            const std::int64_t value = found == bytes.end() ? 0 : found->second;
            cells.push_back(mib(value));
            total += value;
        }
        return line(label, cells, mib(total));
    }

private:
    [[nodiscard]] std::string line(const std::string& label, const std::vector<std::string>& cells,
                                   const std::string& last) const {
        std::string text = fmt::format("{:<{}}", label, rank_width_);
        for (const std::string& cell : cells) text += fmt::format("{:>{}}", cell, width_);
        return text + fmt::format("{:>{}}", last, width_);
    }

    std::int64_t ranks_ = 0;
    std::vector<std::string> modules_;
    std::size_t width_ = 12;
    std::size_t rank_width_ = 6;
};

std::vector<SummaryStage> stages_of(const Json& ranks) {
    std::vector<SummaryStage> stages;
    for (const Json& rank : ranks) {
        SummaryStage stage{rank.at("stands_for_ranks").get<std::int64_t>(), {}};
        for (const auto& [module, bytes] : rank.at("megatron_summary_bytes").items())
            if (bytes.get<std::int64_t>() > 0) stage.bytes[module] = bytes.get<std::int64_t>();
        stages.push_back(std::move(stage));
    }
    return stages;
}

bool one_table_a_stage(const Json& plan) {
    const std::string rules = plan.at("rules").get<std::string>();
    return rules == "main-2026-08" || rules == "dev";
}

std::string rank_range(const Json& rank) {
    const std::int64_t first = rank.at("rank").get<std::int64_t>();
    const std::int64_t last = first + rank.at("stands_for_ranks").get<std::int64_t>() - 1;
    return last == first ? fmt::format("{}", first) : fmt::format("{}-{}", first, last);
}

std::string tables_of_stages(const Json& ranks) {
    const std::vector<SummaryStage> stages = stages_of(ranks);
    if (stages.size() == 1) return summary_table(stages);
    std::string text;
    for (std::size_t i = 0; i < stages.size(); ++i)
        text += fmt::format("Pipeline rank {}, global ranks {}\n", ranks[i].at("pipeline_rank").get<std::int64_t>(),
                            rank_range(ranks[i])) +
                summary_table({&stages[i], 1});
    return text;
}

/// What steady steps move, which Megatron-LM prints nowhere.
std::string moved_table(const Json& ranks) {
    std::set<std::string> modules;
    for (const Json& rank : ranks)
        for (const auto& [module, bytes] : rank.at("offloaded_bytes").items())
            if (bytes.get<std::int64_t>() > 0) modules.insert(module);
    std::vector<Table::Column> columns{{"pipeline rank"}, {"global ranks"}};
    for (const std::string& module : modules) columns.push_back({module});
    columns.push_back({"total"});
    Table table(std::move(columns));
    for (const Json& rank : ranks) {
        std::vector<std::string> cells{rank.at("pipeline_rank").dump(), rank_range(rank)};
        std::int64_t total = 0;
        for (const std::string& module : modules) {
            const std::int64_t bytes = rank.at("offloaded_bytes").value(module, std::int64_t{0});
            cells.push_back(mib(bytes));
            total += bytes;
        }
        cells.push_back(mib(total));
        table.add(std::move(cells));
    }
    return table.text();
}

}  // namespace

std::string summary_table(std::span<const SummaryStage> stages) {
    const Columns columns(stages);
    const std::string header = columns.header();
    const std::string thick(header.size(), '=');
    const std::string thin(header.size(), '-');
    std::string text =
        fmt::format("\n{}\n{}\n{}\n{}\n{}\n", thick, centred(kTitle, header.size()), thick, header, thin);
    std::map<std::string, std::int64_t> totals;
    std::int64_t number = 0;
    for (const SummaryStage& stage : stages) {
        for (const auto& [module, bytes] : stage.bytes) totals[module] += bytes * stage.ranks;
        for (std::int64_t i = 0; i < stage.ranks; ++i)
            text += columns.row(fmt::format("Rank {}", number++), stage.bytes) + "\n";
    }
    return text + fmt::format("{}\n{}\n{}\n\n", thin, columns.row("Total", totals), thick);
}

std::string megatron_tables(const Json& plan) {
    const Json& answer = plan.contains("smallest") ? plan.at("smallest") : plan;
    const Json& ranks = answer.at("ranks");
    if (ranks.empty()) return "No choice of this plan runs, so there is no table.\n";
    if (answer.at("choice").at("offload_modules").empty())
        return "Nothing is offloaded, so Megatron-LM prints no table.\n";
    const std::string tables = one_table_a_stage(plan) ? tables_of_stages(ranks) : summary_table(stages_of(ranks));
    return tables +
           wrapped(
               "Megatron-LM's table counts only the microbatches up to the first that runs backward, by what may "
               "leave. What each rank really moves to the host in a later step, of all microbatches (MiB):",
               0) +
           "\n" + moved_table(ranks);
}

}  // namespace stowage::reports
