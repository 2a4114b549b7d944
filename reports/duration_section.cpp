#include "reports/duration_section.hpp"

#include <fmt/format.h>

#include "reports/table.hpp"
#include "reports/units.hpp"

namespace stowage::reports {
namespace {

constexpr std::size_t kShownDifferences = 6;

std::string line(const std::string& words) { return "  " + wrapped(words, 4) + "\n"; }

std::string percent_or_unknown(const Json& share) {
    return share.is_null() ? "not known" : percent(share.get<double>());
}

std::string recording_words(const Json& recording) {
    std::string words = fmt::format("recorded: {}, pipeline rank {} on {}; {} steps, {} kernels",
                                    recording.at("scenario").get<std::string>(), recording.at("pipeline_rank").dump(),
                                    recording.at("device").get<std::string>(), recording.at("steps").dump(),
                                    recording.at("kernels").dump());
    if (!recording.at("same_device").get<bool>())
        words += "; another device than the plan's, so nothing is as measured";
    if (recording.at("layers") != 0)
        words += fmt::format("; {} layers are the recording's", recording.at("layers").dump());
    if (const Json& cost = recording.at("recording_cost"); !cost.is_null())
        words += fmt::format("; recording made the step {} longer", percent(cost.get<double>()));
    return words;
}

std::string share_words(const Json& document) {
    const Json& durations = document.at("durations");
    std::string words;
    for (const auto& [source, share] : durations.at("shares").items())
        words += fmt::format("{}{} {}", words.empty() ? "" : ", ", percent(share.get<double>()), source);
    const Json& predicted = document.at("predicted");
    if (!predicted.contains("step_time_error")) return words;
    const Json& error = predicted.at("step_time_error");
    if (error.is_null()) return words + "; nothing tells by how much the step's time may be off";
    return words + fmt::format("; the step's time may be off by {} for it", percent(error.get<double>()));
}

std::string modules_table(const Json& durations) {
    Table table({{"module", Table::Align::left},
                 {"ms a step"},
                 {"share"},
                 {"worst source", Table::Align::left},
                 {"its error"}});
    for (const Json& module : durations.at("modules"))
        table.add({module.at("module").get<std::string>(), milliseconds(module.at("time_us").get<double>()),
                   percent(module.at("share").get<double>()), module.at("worst").get<std::string>(),
                   percent_or_unknown(module.at("error"))});
    return table.text();
}

std::string differences(const Json& durations) {
    const Json& list = durations.at("operations_that_differ");
    std::string lines;
    for (std::size_t i = 0; i < list.size() && i < kShownDifferences; ++i) lines += line(list[i].get<std::string>());
    if (list.size() > kShownDifferences)
        lines += fmt::format("  and {} more, in the file that --out writes\n", list.size() - kShownDifferences);
    return lines;
}

}  // namespace

std::string duration_section(const Json& document) {
    if (!document.contains("durations")) return {};
    const Json& durations = document.at("durations");
    return fmt::format("\nDurations of what pipeline rank {} computes\n", durations.at("pipeline_rank").dump()) +
           line(recording_words(durations.at("recording"))) + line(share_words(document)) + modules_table(durations) +
           differences(durations);
}

}  // namespace stowage::reports
