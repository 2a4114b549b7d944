#include <algorithm>
#include <cctype>
#include <memory>
#include <vector>

#include "cli/verb.hpp"
#include "planner/rules/rule_pages.hpp"
#include "reports/rule_report.hpp"
#include "scenarios/reader/nearest.hpp"

namespace stowage::cli {
namespace {

struct ExplainOptions {
    CommonOptions common;
    std::string rule;
};

/// Up to three ids that look like `asked`, the nearest first; of as near ones those of its family first.
std::vector<std::string_view> nearest_ids(const std::string& asked) {
    constexpr std::size_t kShown = 3;
    std::vector<std::string_view> known;
    for (const rules::RulePage& page : rules::rule_pages()) known.push_back(page.id);
    std::stable_partition(known.begin(), known.end(), [&](std::string_view id) {
        return std::toupper(static_cast<unsigned char>(asked[0])) == id[0];
    });
    std::vector<std::string_view> found;
    while (found.size() < kShown) {
        const std::string_view near = reader::nearest(asked, known);
        if (near.empty()) break;
        found.push_back(near);
        std::erase(known, near);
    }
    return found;
}

[[noreturn]] void refuse_unknown(const std::string& asked) {
    std::string hint;
    for (const std::string_view near : nearest_ids(asked))
        hint += (hint.empty() ? "near it: " : ", ") + std::string(near);
    hint += (hint.empty() ? "" : "; ") + std::string("'stowage explain' lists all rules");
    throw CommandLineError("explain: there is no rule '" + asked + "'\nhint: " + hint);
}

types::ExitCode run_explain(const ExplainOptions& options) {
    const bool all = options.rule.empty();
    const std::vector<rules::RulePage> pages = rules::pages_of(options.rule);
    if (!all && pages.empty()) refuse_unknown(options.rule);
    const reports::Json document = all ? reports::explain_json(rules::rule_pages()) : reports::explain_json(pages);
    if (options.common.json)
        print(reports::to_text(document));
    else if (!options.common.quiet)
        print(all ? reports::explain_list(document) : reports::explain_text(document));
    return types::ExitCode::yes;
}

}  // namespace

void add_explain_command(CLI::App& app, Run& chosen) {
    const auto options = std::make_shared<ExplainOptions>();
    CLI::App* const verb =
        add_verb(app, "explain", "Says what a rule that 'check' reports is about; without one, lists all.",
                 "stowage explain D1", options->common);
    verb->add_option("RULE", options->rule, "id of a rule, such as X4; left out: one line for each");
    verb->callback([options, &chosen] { chosen = [options] { return run_explain(*options); }; });
}

}  // namespace stowage::cli
