#include <fmt/format.h>

#include <algorithm>

#include "profiler/calibrate/fits.hpp"

namespace stowage::calibrate {
namespace {

using types::operator""_MiB;

constexpr Bytes kDuplexSize = 64_MiB;  // as large as a layer's tensors are

const CopyTimes* find(const Measurements& measurements, CopyDirection direction, Bytes size) {
    for (const CopyTimes& times : measurements.copies)
        if (times.copy.direction == direction && times.copy.size == size && times.copy.pinned && !times.copy_us.empty())
            return &times;
    return nullptr;
}

/// Points in rising order; one that does not rise above the last (noise of small copies) is left out.
std::vector<types::CopyPoint> points_of(const Measurements& measurements, CopyDirection direction) {
    std::vector<types::CopyPoint> points;
    for (const CopyTimes& times : measurements.copies) {
        if (times.copy.direction != direction || !times.copy.pinned || times.copy_us.empty()) continue;
        const types::Nanoseconds time{static_cast<std::int64_t>(rounded(median(times.copy_us), 5) * 1e3)};
        const bool rises = points.empty() || (times.copy.size > points.back().size && time > points.back().time);
        if (rises) points.push_back({times.copy.size, time});
    }
    return points;
}

/// The share of its rate alone that each direction keeps while the other runs. The direction that ends first shared the
/// link all the time; of the other one, what ran after that ran alone.
std::pair<double, double> shares(const DuplexRound& round, double to_host_alone, double to_device_alone) {
    const double copies = round.copies;
    const double first = std::min(round.device_to_host_us, round.host_to_device_us);
    const auto share = [&](double end, double alone) {
        const double after = end - first;
        return (copies * alone - after) / first;
    };
    return {share(round.device_to_host_us, to_host_alone), share(round.host_to_device_us, to_device_alone)};
}

struct DuplexShares {
    std::vector<double> to_host;
    std::vector<double> to_device;
};

DuplexShares duplex_shares(const Measurements& measurements, Bytes size) {
    DuplexShares result;
    const CopyTimes* const to_host = find(measurements, CopyDirection::device_to_host, size);
    const CopyTimes* const to_device = find(measurements, CopyDirection::host_to_device, size);
    if (to_host == nullptr || to_device == nullptr) return result;
    for (const DuplexTimes& times : measurements.duplex) {
        if (times.size != size) continue;
        for (const DuplexRound& round : times.rounds) {
            const auto [one, other] = shares(round, median(to_host->copy_us), median(to_device->copy_us));
            result.to_host.push_back(std::clamp(one, 0.01, 1.0));
            result.to_device.push_back(std::clamp(other, 0.01, 1.0));
        }
    }
    return result;
}

void fit_curve(const Measurements& measurements, const Draft& draft, CopyDirection direction, const std::string& name,
               types::CopyCurve& curve) {
    const std::vector<types::CopyPoint> points = points_of(measurements, direction);
    if (points.size() < 2) return draft.from_base(Section::copy, name);
    const double before = in_gb(curve.peak_rate());
    curve = types::CopyCurve(points);
    const CopyTimes* const largest = find(measurements, direction, points.back().size);
    Interval rate = median_interval(largest->copy_us);
    const auto bytes = static_cast<double>(largest->copy.size.count);
    rate = {bytes / rate.high / 1e3, bytes / rate.middle / 1e3, bytes / rate.low / 1e3};
    draft.figure("copy " + name + ", largest", "GB/s", rate, before);
    draft.source(Section::copy, name,
                 fmt::format("measured; pinned memory, one stream, medians of {} rounds", largest->copy_us.size()));
}

void fit_duplex(const Measurements& measurements, const Draft& draft) {
    const DuplexShares found = duplex_shares(measurements, kDuplexSize);
    if (found.to_host.empty()) return draft.from_base(Section::copy, "duplex");
    types::CopyEngines& copy = draft.node().copy;
    const Interval to_host = median_interval(found.to_host);
    const Interval to_device = median_interval(found.to_device);
    draft.figure("share kept to the host, both directions", "", to_host, copy.duplex_device_to_host);
    draft.figure("share kept from the host, both directions", "", to_device, copy.duplex_host_to_device);
    copy.duplex_device_to_host = rounded(to_host.middle, 3);
    copy.duplex_host_to_device = rounded(to_device.middle, 3);
    draft.source(Section::copy, "duplex",
                 fmt::format("measured; pieces of 64 MiB in both directions at once, {} rounds; to the host {:.2f} to "
                             "{:.2f}, from it {:.2f} to {:.2f}",
                             found.to_host.size(), to_host.low, to_host.high, to_device.low, to_device.high));
}

}  // namespace

void fit_copies(const Measurements& measurements, const Draft& draft) {
    types::CopyEngines& copy = draft.node().copy;
    fit_curve(measurements, draft, CopyDirection::device_to_host, "device_to_host", copy.device_to_host);
    fit_curve(measurements, draft, CopyDirection::host_to_device, "host_to_device", copy.host_to_device);
    fit_duplex(measurements, draft);
    draft.from_base(Section::copy, "time_slice");
}

}  // namespace stowage::calibrate
