#include <gtest/gtest.h>

#include "reports/measurement_report.hpp"
#include "reports/output_file.hpp"
#include "reports/scenario_json.hpp"
#include "scenarios/types/error.hpp"
#include "tests/reports/measurement_runs.hpp"
#include "tests/support/temporary_folder.hpp"

namespace stowage::reports {
namespace {

class MeasurementReport : public ::testing::Test {
protected:
    /// As much of a plan as stands beside a measurement.
    static Json plan_of(const types::Scenario& scenario) {
        return {{"implementation", std::string(types::name_of(scenario.implementation))},
                {"scenario", scenario_json(scenario)}};
    }

    [[nodiscard]] std::string written(const MeasuredRun& run) const {
        write_file(folder_ / "m.json", to_text(measurement_json(run)));
        return (folder_ / "m.json").string();
    }

    [[nodiscard]] std::string message_beside(const Json& plan, const MeasuredRun& run) const {
        try {
            (void)measurement_beside(plan, written(run));
        } catch (const types::InputError& error) {
            return error.what();
        }
        return "taken";
    }

    support::TemporaryFolder folder_;
    MeasuredRun run_ = a_measured_run();
};

TEST_F(MeasurementReport, TakesMeasurementsOfTheSameJobWhateverTheyOffload) {
    types::Scenario planned = run_.scenario;
    EXPECT_EQ(message_beside(plan_of(planned), run_), "taken");
    planned.offload.activation_offload_fraction = 0.25;
    EXPECT_EQ(message_beside(plan_of(planned), run_), "taken");
    planned.batch.seq_length = 12345;
    EXPECT_NE(message_beside(plan_of(planned), run_).find("m.json: error: scenario: is another job than the plan's\n"),
              std::string::npos);
}

TEST_F(MeasurementReport, ComparesWithinAnImplementationOnly) {
    types::Scenario planned = run_.scenario;
    planned.implementation = types::Implementation::megatron;
    EXPECT_NE(message_beside(plan_of(planned), run_)
                  .find("m.json: error: implementation: found layers of stowage, the plan is of megatron\n"),
              std::string::npos);
}

TEST_F(MeasurementReport, RefusesAnIncompleteFile) {
    Json document = measurement_json(run_);
    document.erase("losses");
    write_file(folder_ / "m.json", to_text(document));
    const std::string file = (folder_ / "m.json").string();
    try {
        (void)measurement_beside(plan_of(run_.scenario), file);
        FAIL() << "taken";
    } catch (const types::InputError& error) {
        EXPECT_EQ(error.what(), file + ": error: not as stowage writes it: losses is missing");
    }
}

TEST_F(MeasurementReport, HasARowForEachQuantity) {
    const std::vector<MeasuredFile> files{{"m,1.json", measurement_json(run_)}};
    const std::string csv = measured_csv(files);
    EXPECT_EQ(csv.substr(0, csv.find('\n')), "file,pipeline_rank,policy,allocator,quantity,predicted,measured,error");
    EXPECT_NE(csv.find("\n\"m,1.json\",1,megatron,caching,step_time_us,365000.0,366000.019,-0.0027"), std::string::npos)
        << csv;
    EXPECT_NE(csv.find("\n\"m,1.json\",1,megatron,caching,peak_allocated_bytes,210,200,0.05"), std::string::npos)
        << csv;
    EXPECT_NE(csv.find("\n\"m,1.json\",1,megatron,caching,pinned_bytes,35,35,0.0\n"), std::string::npos) << csv;
    const std::string section = measured_section(files);
    EXPECT_NE(section.find("  m,1.json        1  megatron  caching    step, ms           365.00    366.00  -0.3 %\n"),
              std::string::npos)
        << section;
    run_.measurement.event_times.clear();
    EXPECT_NE(measured_csv({{"m", measurement_json(run_)}}).find("step_time_us,365000.0,,\n"), std::string::npos);
}

}  // namespace
}  // namespace stowage::reports
