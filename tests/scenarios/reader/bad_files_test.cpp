// Files that are no scenario at all: each is refused with a clear text and nothing else happens.
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <chrono>

#include "scenarios/reader/scenario_reader.hpp"
#include "tests/scenarios/reader/temporary_folder.hpp"

namespace stowage::reader::testing {
namespace {

std::string error_of(const std::string& path) {
    try {
        load_scenario(path);
        return "no error";
    } catch (const types::InputError& error) {
        return error.what();
    }
}

std::string error_of_text(const std::string& text) {
    const TemporaryFolder folder;
    write_valid_files();
    write_file("scenario.yaml", text);
    return error_of("scenario.yaml");
}

std::string valid_text() { return read_text(cases_folder() / "scenario.yaml"); }

TEST(BadFiles, AMissingFileIsNamedWithTheNearestOne) {
    const TemporaryFolder folder;
    write_valid_files();
    EXPECT_EQ(error_of("scenaro.yaml"),
              "scenaro.yaml: error: does not exist\n"
              "hint: did you mean 'scenario.yaml'?");
}

TEST(BadFiles, AFolderIsNoFile) {
    const TemporaryFolder folder;
    EXPECT_EQ(error_of("."), ".: error: is a directory, expected a YAML file");
}

TEST(BadFiles, APipeIsNotRead) {
    const TemporaryFolder folder;
    ASSERT_EQ(mkfifo("pipe", 0600), 0);
    EXPECT_EQ(error_of("pipe"), "pipe: error: is not a regular file, expected a YAML file");
}

TEST(BadFiles, AFileWithoutPermissionSaysSo) {
    if (geteuid() == 0) GTEST_SKIP() << "root may read every file";
    const TemporaryFolder folder;
    write_file("secret.yaml", "schema: x");
    ASSERT_EQ(chmod("secret.yaml", 0), 0);
    EXPECT_EQ(error_of("secret.yaml"), "secret.yaml: error: cannot be opened: Permission denied");
}

TEST(BadFiles, AnEmptyFileAndOneOfCommentsSayWhatIsExpected) {
    const std::string expected =
        "scenario.yaml: error: the file is empty, expected a mapping that begins with schema: stowage/scenario/1";
    EXPECT_EQ(error_of_text(""), expected);
    EXPECT_EQ(error_of_text("\n\n  \n"), expected);
    EXPECT_EQ(error_of_text("# nothing\n"), expected);
    EXPECT_EQ(error_of_text("---\n...\n"), expected);
}

TEST(BadFiles, AScalarOrListIsNoScenario) {
    EXPECT_EQ(error_of_text("hello\n"),
              "scenario.yaml:1:1: error: found 'hello', expected a mapping that begins with schema: "
              "stowage/scenario/1\n  hello\n  ^");
    EXPECT_EQ(error_of_text("- 1\n- 2\n"),
              "scenario.yaml:1:1: error: found a list, expected a mapping that begins with schema: "
              "stowage/scenario/1\n  - 1\n  ^");
}

TEST(BadFiles, MoreThanFourMebibytesAreNotRead) {
    EXPECT_EQ(error_of_text(std::string((4 << 20) + 1, '#')),
              "scenario.yaml: error: is larger than 4 MiB, expected a file written by hand");
}

TEST(BadFiles, BinaryJunkIsFoundAtItsPlace) {
    EXPECT_EQ(error_of_text(std::string("a: b\nc\0d", 8)),
              "scenario.yaml:2:2: error: found a control character, expected text: is this a binary file?\n"
              "  c?d\n"
              "   ^");
    EXPECT_EQ(error_of_text("\x7f"
                            "ELF\x02\x01"),
              "scenario.yaml:1:1: error: found a control character, expected text: is this a binary file?\n"
              "  ?ELF??\n"
              "  ^");
}

TEST(BadFiles, TextThatIsNotUtf8IsFoundAtItsPlace) {
    EXPECT_EQ(error_of_text("name: caf\xe9\n"),
              "scenario.yaml:1:10: error: found a byte that is not UTF-8, expected text in UTF-8\n"
              "  name: caf?\n"
              "           ^");
    for (const char* bad : {"\xc0\xaf", "\xed\xa0\x80", "\xf5\x80\x80\x80", "\xe2\x82", "\xff\xfe"})
        EXPECT_NE(error_of_text(std::string("a: ") + bad).find(":1:4: error: found a byte that is not UTF-8"),
                  std::string::npos)
            << bad;
}

TEST(BadFiles, ColumnsCountLettersNotBytes) {
    EXPECT_EQ(error_of_text("schema: stowage/scenario/1\n\"\xc3\xa9\xc3\xa9\": 1\n\xe2\x82\xac: &a [*a]\n")
                  .find("scenario.yaml:1:1"),
              0U);
    const std::string text = error_of_text(valid_text() + "# \n\"\xc3\xa9\": {\xe2\x82\xac: *b}\n");
    EXPECT_EQ(text,
              "scenario.yaml:14:10: error: syntax: the referenced anchor is not defined\n"
              "  \"\xc3\xa9\": {\xe2\x82\xac: *b}\n"
              "           ^");
}

TEST(BadFiles, WindowsLineEndsAndAByteOrderMarkAreReadLikeAnyOther) {
    std::string text;
    for (char letter : valid_text()) text += letter == '\n' ? std::string("\r\n") : std::string(1, letter);
    EXPECT_EQ(error_of_text("\xEF\xBB\xBF" + text), "no error");
}

TEST(BadFiles, AnErrorInALongLineShowsThePartAroundIt) {
    const std::string text = valid_text() + "source: " + std::string(300, 'x') + " : y : z\n";
    const std::string error = error_of_text(text);
    EXPECT_NE(error.find("scenario.yaml:13:"), std::string::npos) << error;
    for (std::size_t start = 0, end = 0; end != std::string::npos; start = end + 1) {
        end = error.find('\n', start);
        EXPECT_LT(std::min(end, error.size()) - start, 125U) << error;
    }
}

TEST(BadFiles, AfterAHundredErrorsTheRestIsCounted) {
    std::string text = valid_text();
    for (int i = 0; i < 150; ++i) text += "zzzzzzzzzz" + std::to_string(i) + ": 1\n";
    const std::string error = error_of_text(text);
    EXPECT_EQ(error.substr(error.rfind('\n')), "\nand 50 more errors");
}

TEST(BadFiles, LargeAndDeepFilesAreRefusedQuickly) {
    const auto start = std::chrono::steady_clock::now();
    const std::size_t size = 1 << 18;
    for (const char* piece : {"[", "{",   "- ",   "? ", "a: ", "\"",  "'",     "| ",    "&a ", "!",  "!t ",
                              "*", "[a,", "{a: ", "%",  ": ",  "x\n", "- x\n", "---\n", "#",   "\\", ","}) {
        std::string text;
        while (text.size() < size) text += piece;
        EXPECT_NE(error_of_text(text), "no error") << piece;
    }
    // Well under a second in a release build; the bound leaves room for sanitizers.
    EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(60));
}

}  // namespace
}  // namespace stowage::reader::testing
