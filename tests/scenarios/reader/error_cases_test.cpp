// Every error of the reader, with its whole text, from cases/errors.txt. After a change that is meant, run with
// STOWAGE_UPDATE_EXPECTED=1 to write the new texts, and review them as code.
#include <gtest/gtest.h>

#include <cstdlib>
#include <sstream>
#include <string>
#include <vector>

#include "scenarios/reader/scenario_reader.hpp"
#include "tests/scenarios/reader/temporary_folder.hpp"

namespace stowage::reader::testing {
namespace {

struct Case {
    std::string title;
    std::vector<std::string> edits;
    std::string expected;
};

struct CaseFile {
    std::string heading;
    std::vector<Case> cases;
};

CaseFile read_cases() {
    CaseFile file;
    std::istringstream stream(read_text(cases_folder() / "errors.txt"));
    bool in_expected = false;
    for (std::string line; std::getline(stream, line);) {
        if (line.starts_with("== ")) {
            file.cases.push_back(Case{line.substr(3), {}, {}});
            in_expected = false;
        } else if (file.cases.empty()) {
            file.heading += line + "\n";
        } else if (line == "--" && !in_expected) {
            in_expected = true;
        } else if (in_expected) {
            file.cases.back().expected += line + "\n";
        } else {
            file.cases.back().edits.push_back(line);
        }
    }
    return file;
}

std::string unescaped(const std::string& text) {
    std::string result;
    for (std::size_t i = 0; i < text.size(); ++i) {
        const char next = i + 1 < text.size() ? text[i + 1] : '\0';
        const bool escape = text[i] == '\\' && (next == 'n' || next == 't' || next == '\\');
        result += !escape ? text[i] : next == 'n' ? '\n' : next == 't' ? '\t' : '\\';
        if (escape) ++i;
    }
    return result;
}

void apply(const std::string& edit) {
    const std::size_t colon = edit.find(": ");
    const std::size_t arrow = edit.find(" => ");
    ASSERT_NE(colon, std::string::npos) << edit;
    ASSERT_NE(arrow, std::string::npos) << edit;
    edit_file(edit.substr(0, colon), unescaped(edit.substr(colon + 2, arrow - colon - 2)),
              unescaped(edit.substr(arrow + 4)));
}

std::string error_of(const Case& item) {
    const TemporaryFolder folder;
    write_valid_files();
    for (const std::string& edit : item.edits) apply(edit);
    try {
        load_scenario("scenario.yaml");
        return "no error\n";
    } catch (const types::InputError& error) {
        EXPECT_EQ(error.code(), types::ExitCode::input);
        return std::string(error.what()) + "\n";
    }
}

TEST(ErrorCases, TheFilesThatTheyEditAreValid) { EXPECT_EQ(error_of(Case{}), "no error\n"); }

TEST(ErrorCases, EachIsReportedWithPlaceLineCaretAndHint) {
    CaseFile file = read_cases();
    ASSERT_GT(file.cases.size(), 100U);
    const bool update = std::getenv("STOWAGE_UPDATE_EXPECTED") != nullptr;
    std::string all = file.heading;
    for (Case& item : file.cases) {
        const std::string error = error_of(item);
        if (!update) {
            EXPECT_EQ(error, item.expected) << "case: " << item.title;
        }
        all += "== " + item.title + "\n";
        for (const std::string& edit : item.edits) all += edit + "\n";
        all += "--\n" + error;
    }
    if (update) write_file((cases_folder() / "errors.txt").string(), all);
}

}  // namespace
}  // namespace stowage::reader::testing
