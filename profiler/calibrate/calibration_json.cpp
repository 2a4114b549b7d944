#include "profiler/calibrate/calibration_report.hpp"

namespace stowage::calibrate {
namespace {

Json interval_json(const Interval& interval) {
    return {
        {"value", rounded(interval.middle, 6)}, {"low", rounded(interval.low, 6)}, {"high", rounded(interval.high, 6)}};
}

Json state_json(const State& state) {
    return {{"clock_mhz", rounded(state.clock_mhz)}, {"power_watts", rounded(state.watts)}};
}

Json machine_json(const Measurements& measurements) {
    const Machine& machine = measurements.machine;
    const MemoryUse& memory = measurements.memory;
    return {{"device", machine.device},
            {"compute_capability", machine.compute_capability},
            {"multiprocessors", machine.multiprocessors},
            {"devices", machine.devices},
            {"power_limit_watts", machine.power_limit_watts},
            {"driver", machine.driver},
            {"cuda", machine.cuda},
            {"cublaslt", machine.cublaslt},
            {"cudnn", machine.cudnn},
            {"memory",
             {{"total_bytes", machine.total_memory.count},
              {"context_bytes", memory.context.count},
              {"kernels_bytes", memory.kernels.count},
              {"cublaslt_bytes", memory.gemms.count},
              {"cudnn_bytes", memory.attention.count},
              {"free_bytes", memory.free.count}}}};
}

Json figures_json(const Calibration& calibration) {
    Json figures = Json::array();
    for (const Figure& figure : calibration.figures) {
        Json one = {{"name", figure.name}, {"unit", figure.unit}};
        one.update(interval_json(figure.value));
        if (figure.base) one["base"] = rounded(*figure.base, 6);
        figures.push_back(std::move(one));
    }
    return figures;
}

Json cases_json(const std::vector<CaseError>& cases) {
    Json result = Json::array();
    for (const CaseError& one : cases) {
        Json entry = {{"name", one.name},
                      {"measured_us", rounded(one.measured_us, 6)},
                      {"predicted_us", rounded(one.predicted_us, 6)},
                      {"error", rounded(one.error())}};
        entry.update(state_json(one.state));
        result.push_back(std::move(entry));
    }
    return result;
}

Json fit_json(const NamedFit& fit) {
    Json parameters = Json::array();
    for (const FittedParameter& parameter : fit.fit.parameters)
        parameters.push_back({{"name", parameter.name},
                              {"value", rounded(parameter.value, 6)},
                              {"error", rounded(parameter.error, 3)},
                              {"at_bound", parameter.at_bound}});
    return {{"name", fit.name},
            {"parameters", std::move(parameters)},
            {"rows", fit.fit.residuals.size()},
            {"left_out", fit.fit.left_out},
            {"root_mean_square", rounded(fit.fit.root_mean_square)},
            {"largest", rounded(fit.fit.largest)},
            {"converged", fit.fit.converged},
            {"cases", cases_json(fit.cases)}};
}

std::string direction_name(CopyDirection direction) {
    return direction == CopyDirection::device_to_host ? "device_to_host" : "host_to_device";
}

double gb_per_s(Bytes size, double us) { return rounded(static_cast<double>(size.count) / us / 1e3); }

Json copies_json(const Measurements& measurements) {
    Json result = Json::array();
    for (const CopyTimes& times : measurements.copies) {
        if (times.copy_us.empty()) continue;
        const Interval us = median_interval(times.copy_us);
        result.push_back({{"direction", direction_name(times.copy.direction)},
                          {"memory", times.copy.pinned ? "pinned" : "pageable"},
                          {"size_bytes", times.copy.size.count},
                          {"copy_us", interval_json(us)},
                          {"gb_per_s", gb_per_s(times.copy.size, us.middle)}});
    }
    return result;
}

Json duplex_json(const Measurements& measurements) {
    Json result = Json::array();
    for (const DuplexTimes& times : measurements.duplex) {
        std::vector<double> to_host;
        std::vector<double> to_device;
        for (const DuplexRound& round : times.rounds) {
            const auto bytes = static_cast<double>(times.size.count) * round.copies;
            to_host.push_back(bytes / round.device_to_host_us / 1e3);
            to_device.push_back(bytes / round.host_to_device_us / 1e3);
        }
        if (to_host.empty()) continue;
        result.push_back({{"size_bytes", times.size.count},
                          {"device_to_host_gb_per_s", interval_json(median_interval(to_host))},
                          {"host_to_device_gb_per_s", interval_json(median_interval(to_device))}});
    }
    return result;
}

Json shared_json(const Measurements& measurements) {
    Json result = Json::array();
    for (const SharedCopies& shared : measurements.shared_copies)
        result.push_back({{"direction", direction_name(shared.direction)},
                          {"size_bytes", shared.size.count},
                          {"gb_per_s", shared.gb_per_s}});
    return result;
}

Json duties_json(const Calibration& calibration) {
    Json result = Json::array();
    for (const DutyFigures& one : calibration.duties) {
        Json entry = {{"duty", one.duty},
                      {"gemm_tflop_per_s", rounded(one.gemm_tflop_per_s)},
                      {"multiplying", rounded(one.multiplying)},
                      {"attention", rounded(one.attention)},
                      {"layer_us", rounded(one.layer_us, 6)}};
        entry.update(state_json(one.state));
        result.push_back(std::move(entry));
    }
    return result;
}

Json beside_json(const Calibration& calibration) {
    Json result = Json::array();
    for (const BesideFigures& one : calibration.beside)
        result.push_back({{"name", one.name},
                          {"covered", rounded(one.covered)},
                          {"under_d2h", interval_json(one.excess.at(index(Beside::device_to_host)))},
                          {"under_h2d", interval_json(one.excess.at(index(Beside::host_to_device)))},
                          {"under_both", interval_json(one.excess.at(index(Beside::both)))}});
    return result;
}

Json stocks_json(const Measurements& measurements) {
    Json result = Json::array();
    for (const GraphStock& stock : measurements.graph_stocks)
        result.push_back({{"kernels", stock.shape.kernels},
                          {"branches", stock.shape.branches},
                          {"graphs", stock.graphs},
                          {"taken_bytes", stock.taken.count},
                          {"instantiate_us", rounded(stock.instantiate_us)}});
    return result;
}

Json memory_kernels_json(const Measurements& measurements) {
    Json result = Json::array();
    for (const KernelTimes& times : measurements.kernels) {
        if (times.blocks.empty() || work_of(times.kernel).flops > 0) continue;
        std::vector<double> us;
        for (const Block& block : times.blocks) us.push_back(block.call_us);
        result.push_back({{"name", name_of(times.kernel)},
                          {"call_us", interval_json(median_interval(us))},
                          {"gb_per_s", rounded(work_of(times.kernel).operand_bytes / median(us) / 1e3)}});
    }
    return result;
}

}  // namespace

Json calibration_json(const Calibration& calibration, const Measurements& measurements, const Base& base) {
    Json document;
    document["schema"] = "stowage/calibration/1";
    document["machine"] = machine_json(measurements);
    document["base"] = base.name;
    document["figures"] = figures_json(calibration);
    document["fits"] = Json::array();
    for (const NamedFit& fit : calibration.fits) document["fits"].push_back(fit_json(fit));
    document["layer"] = cases_json(calibration.layer);
    document["duty"] = duties_json(calibration);
    document["copies"] = copies_json(measurements);
    document["duplex"] = duplex_json(measurements);
    document["devices_at_once"] = shared_json(measurements);
    document["beside_copies"] = beside_json(calibration);
    document["memory_kernels"] = memory_kernels_json(measurements);
    document["graphs_kept"] = stocks_json(measurements);
    document["phases"] = Json::array();
    for (const Phase& phase : measurements.phases)
        document["phases"].push_back({{"name", phase.name}, {"seconds", rounded(phase.seconds)}});
    document["notes"] = measurements.notes;
    return document;
}

}  // namespace stowage::calibrate
