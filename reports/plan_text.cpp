#include "reports/plan_text.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "reports/duration_section.hpp"
#include "reports/graph_sections.hpp"
#include "reports/megatron_flags.hpp"
#include "reports/sections.hpp"
#include "reports/shortage_json.hpp"
#include "reports/table.hpp"
#include "reports/units.hpp"

namespace stowage::reports {
namespace {

constexpr double kAtTheFloor = 0.01;

std::int64_t bytes(const Json& object, const char* key) { return object.at(key).get<std::int64_t>(); }
double microseconds(const Json& object, const char* key) { return object.at(key).get<double>(); }
std::string text(const Json& object, const char* key) { return object.at(key).get<std::string>(); }

std::int64_t device_limit(const Json& document) { return bytes(document.at("limits"), "device_memory_bytes"); }

std::string labelled(const char* label, const std::string& words) {
    return fmt::format("  {:<10}{}\n", label, wrapped(words, 12));
}

std::string step_words(const Json& predicted) {
    std::string words = fmt::format("{} ms a step, {:.1f} TFLOP/s a GPU; the first iteration {} ms",
                                    milliseconds(microseconds(predicted, "step_time_us")),
                                    microseconds(predicted, "tflop_per_s_per_gpu"),
                                    milliseconds(microseconds(predicted, "first_iteration_us")));
    if (predicted.contains("eager_iteration_us"))
        words += fmt::format(", eager ones {} ms", milliseconds(microseconds(predicted, "eager_iteration_us")));
    if (predicted.contains("capture_us"))
        words += fmt::format(", the capture {} ms", milliseconds(microseconds(predicted, "capture_us")));
    return words;
}

std::string memory_words(const Json& ranks, std::int64_t limit) {
    const Json& fullest = fullest_rank(ranks);
    const std::int64_t taken = peak_device(fullest);
    return fmt::format("{} GiB {} on the fullest rank (pipeline rank {}), {} GiB {} the limit", gib(taken),
                       fullest.contains("graphs") ? "reserved and taken by graphs" : "reserved",
                       fullest.at("pipeline_rank").dump(), gib(std::abs(limit - taken)),
                       taken > limit ? "over" : "below");
}

std::string pinned_words(const Json& predicted, const Json& limits) {
    return fmt::format("{} of {} GiB pinned on the fullest node; {} GiB if each rank's lay in one arena",
                       gib(bytes(predicted, "pinned_host_bytes_per_node")),
                       short_gib(bytes(limits, "host_memory_per_node_bytes")),
                       gib(bytes(predicted, "pinned_arena_bytes_per_node")));
}

std::string outcome_lines(const Json& predicted, const Json& ranks, const Json& limits) {
    std::string lines = labelled("time", step_words(predicted));
    lines += labelled("memory", memory_words(ranks, bytes(limits, "device_memory_bytes")));
    if (bytes(predicted, "pinned_host_bytes_per_node") > 0) lines += labelled("host", pinned_words(predicted, limits));
    return lines;
}

std::string headline(const Json& plan) {
    const std::string name = text(plan, "scenario_name");
    const std::string verdict = text(plan, "verdict");
    if (verdict == "infeasible" && bytes(plan.at("certificate"), "candidates") == 0)
        return name + ": infeasible, it does not fit as it is and the scenario leaves no legal choice\n\n";
    if (verdict == "infeasible") return name + ": infeasible, no choice of modules and fraction fits\n\n";
    if (verdict == "nothing_to_do") return name + ": nothing to do, it fits without offloading\n\n";
    return name + ": offload " + choice_words(plan.at("choice")) + "\n\n";
}

std::string answer_section(const Json& plan) {
    if (text(plan, "verdict") != "infeasible")
        return outcome_lines(plan.at("predicted"), plan.at("ranks"), plan.at("limits")) + flags_section(plan) +
               ranks_section(plan.at("ranks"), device_limit(plan));
    std::string section = labelled("over", text(plan, "limited_by"));
    if (!plan.contains("smallest")) return section;
    const Json& smallest = plan.at("smallest");
    section += labelled("smallest", "the smallest peak found is that of " + choice_words(smallest.at("choice")));
    section += outcome_lines(smallest.at("predicted"), smallest.at("ranks"), plan.at("limits"));
    return section + ranks_section(smallest.at("ranks"), device_limit(plan));
}

/// The rank whose main stream waits longest for copies.
const Json& most_exposed(const Json& ranks) {
    return *std::max_element(ranks.begin(), ranks.end(), [](const Json& left, const Json& right) {
        return microseconds(left, "exposed_copy_us") < microseconds(right, "exposed_copy_us");
    });
}

std::string distance_words(const Json& plan) {
    if (text(plan, "verdict") == "nothing_to_do") return "the plan is the step without copies";
    const double gap = microseconds(plan.at("certificate"), "gap");
    if (gap <= kAtTheFloor)
        return fmt::format("the plan is {} over the lower bound: within 1 % of what is possible", percent(gap));
    const Json& exposed = most_exposed(plan.at("ranks"));
    return fmt::format("the plan is {} over the lower bound; pipeline rank {} waits {} ms a step for copies",
                       percent(gap), exposed.at("pipeline_rank").dump(),
                       milliseconds(microseconds(exposed, "exposed_copy_us")));
}

std::string floor_table(const Json& floor) {
    struct Line {
        const char* key;
        const char* about;
    };
    constexpr Line kLines[] = {
        {"compute_us", "kernels of the busiest rank, back to back"},
        {"schedule_us", "the step without copies: collectives, bubble and launches too"},
        {"beside_copies_us", "those kernels, slowed by the copies that they run beside"},
        {"device_to_host_us", "this plan's copies to the host, busiest rank, nothing beside them"},
        {"host_to_device_us", "this plan's copies from the host, the same way"}};
    Table table({{"ms"}, {"", Table::Align::left}});
    for (const Line& line : kLines)
        if (const double time = floor.value(line.key, 0.0); time > 0) table.add({milliseconds(time), line.about});
    return "\nFloor\n" + table.text();
}

std::string floor_section(const Json& plan) {
    std::string section = floor_table(plan.at("floor"));
    if (!plan.at("choice").is_null()) section += "  " + wrapped(distance_words(plan), 2) + "\n";
    return section;
}

/// Without copies the step is its own floor.
std::string simulated_floor(const Json& simulation) {
    if (!simulation.contains("floor")) return {};
    const Json& floor = simulation.at("floor");
    if (microseconds(floor, "device_to_host_us") == 0) return {};
    const Json& predicted = simulation.at("predicted");
    const double over = microseconds(predicted, "step_time_us") / microseconds(predicted, "floor_us") - 1;
    return floor_table(floor) + fmt::format("  the step is {} over the largest of them\n", percent(over));
}

std::string fraction_words(const Json& choice) {
    return choice.at("offload_modules").empty() ? ""
                                                : plain_number(microseconds(choice, "activation_offload_fraction"));
}

std::vector<std::string> policy_cells(const std::string& name, const Json& choice, const Json& predicted, bool fits) {
    if (predicted.at("step_time_us").is_null())
        return {name, "-", "-", "-", "stops", fraction_words(choice), module_words(choice)};
    return {name,
            milliseconds(microseconds(predicted, "step_time_us")),
            gib(peak_device(predicted)),
            gib(bytes(predicted, "pinned_host_bytes_per_node")),
            fits ? "yes" : "no",
            fraction_words(choice),
            module_words(choice)};
}

std::string baselines_section(const Json& plan) {
    const Json& baselines = plan.at("baselines");
    if (baselines.empty()) return {};
    Table table({{"policy", Table::Align::left},
                 {"step ms"},
                 {"peak GiB"},
                 {"pinned GiB"},
                 {"fits", Table::Align::left},
                 {"fraction"},
                 {"modules", Table::Align::left}});
    if (text(plan, "verdict") == "plan")
        table.add(policy_cells("this plan", plan.at("choice"), plan.at("predicted"), true));
    for (const Json& baseline : baselines) {
        std::string name = text(baseline, "name");
        std::replace(name.begin(), name.end(), '_', ' ');
        table.add(policy_cells(name, baseline.at("choice"), baseline.at("predicted"), baseline.at("fits").get<bool>()));
    }
    const bool graphs = plan.at("scenario").at("cuda_graph").at("cuda_graph_impl") != "none";
    return fmt::format(
        "\nWhat simple policies would have given (peak: reserved{}, fullest rank; pinned: fullest node)\n{}",
        graphs ? " + graphs" : "", table.text());
}

std::string certificate_section(const Json& plan) {
    const Json& certificate = plan.at("certificate");
    const std::string words = fmt::format(
        "{} legal choices: {} simulated, {} ruled out by a bound{}. Lower bound {} ms.",
        grouped(bytes(certificate, "candidates")), grouped(bytes(certificate, "simulated")),
        grouped(bytes(certificate, "pruned")),
        certificate.at("complete").get<bool>() ? "" : ", the rest not looked at because the time limit came first",
        milliseconds(microseconds(certificate, "lower_bound_us")));
    return "\nCertificate\n  " + wrapped(words, 2) + "\n";
}

std::string rejections_section(const Json& plan) {
    std::string section;
    for (const Json& rejection : plan.at("rejections")) {
        std::string modules;
        for (const Json& module : rejection.at("offload_modules"))
            modules += (modules.empty() ? "" : " ") + module.get<std::string>();
        section += "  " +
                   wrapped(fmt::format("{}: {} ({})", modules, text(rejection, "reason"), text(rejection, "rule")), 4) +
                   "\n";
        if (!text(rejection, "nearest_legal").empty())
            section += "    " + wrapped("nearest: " + text(rejection, "nearest_legal"), 6) + "\n";
    }
    return section.empty() ? section : "\nNot taken\n" + section;
}

std::string notes_section(const Json& plan) {
    std::string section;
    for (const Json& note : plan.at("notes")) section += "  " + wrapped(note.get<std::string>(), 4) + "\n";
    return section.empty() ? section : "\nNotes\n" + section;
}

}  // namespace

std::string plan_text(const Json& plan) {
    return headline(plan) + job_section(plan) + answer_section(plan) + floor_section(plan) + duration_section(plan) +
           baselines_section(plan) + certificate_section(plan) + rejections_section(plan) + notes_section(plan);
}

std::string simulation_text(const Json& simulation) {
    std::string report = fmt::format("{}: simulated with {} offloaded\n\n", text(simulation, "scenario_name"),
                                     choice_words(simulation.at("choice")));
    report += job_section(simulation);
    const Json& predicted = simulation.at("predicted");
    if (predicted.at("step_time_us").is_null()) return report + labelled("stops", text(predicted, "stops_with"));
    report += outcome_lines(predicted, simulation.at("ranks"), simulation.at("limits"));
    if (simulation.contains("at_device_limit"))
        report += labelled("at limit", at_limit_words(simulation.at("at_device_limit")));
    return report + flags_section(simulation) + ranks_section(simulation.at("ranks"), device_limit(simulation)) +
           simulated_floor(simulation) + duration_section(simulation) + notes_section(simulation);
}

}  // namespace stowage::reports
