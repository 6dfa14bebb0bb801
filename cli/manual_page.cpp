#include "manual_page.h"

#include <fmt/format.h>

#include <cerrno>
#include <fstream>
#include <string>
#include <vector>

#include "completion.h"
#include "help.h"
#include "retinue/base/error.h"

namespace retinue {
namespace {

/// Text that troff takes literally: hyphens that can be copied, and no line that it would take for a request.
std::string literal(const std::string& text) {
  std::string escaped;
  for (const char each : text) {
    const bool begins_line = escaped.empty() || escaped.back() == '\n';
    if (begins_line && (each == '.' || each == '\'')) escaped += "\\&";
    if (each == '\\') {
      escaped += "\\e";
    } else if (each == '-') {
      escaped += "\\-";
    } else {
      escaped += each;
    }
  }
  return escaped;
}

std::string name_of(const CLI::App& app, const std::string& separator) {
  const CLI::App* parent = app.get_parent();
  return parent == nullptr ? app.get_name() : parent->get_name() + separator + app.get_name();
}

bool is_shown(const CLI::Option* option) {
  return !option->get_group().empty();
}
bool is_shown_command(const CLI::App* command) {
  return !command->get_group().empty();
}

std::string synopsis(const CLI::App& app) {
  const std::string usage = HelpText().make_usage(&app, name_of(app, " "));
  const std::size_t begin = usage.find(": ");
  std::string words = begin == std::string::npos ? usage : usage.substr(begin + 2);
  while (!words.empty() && words.back() == '\n') words.pop_back();
  return words;
}

std::string described(const std::string& title, const std::vector<const CLI::Option*>& options) {
  if (options.empty()) return "";
  std::string text = fmt::format(".SH {}\n", literal(title));
  const HelpText format;
  for (const CLI::Option* option : options)
    text += fmt::format(".TP\n\\fB{}\\fR{}\n{}\n", literal(format.make_option_name(option, option->get_positional())),
                        literal(format.make_option_opts(option)), literal(option->get_description()));
  return text;
}

std::string described_commands(const CLI::App& app) {
  const std::vector<const CLI::App*> commands = app.get_subcommands(is_shown_command);
  if (commands.empty()) return "";
  std::string text = ".SH COMMANDS\n";
  for (const CLI::App* command : commands)
    text +=
        fmt::format(".TP\n\\fB{0}\\fR(1)\n{1}\n", literal(name_of(*command, "-")), literal(command->get_description()));
  return text;
}

std::string upper(std::string text) {
  for (char& each : text)
    if (each >= 'a' && each <= 'z') each = static_cast<char>(each - 'a' + 'A');
  return text;
}

void write_file(const std::filesystem::path& path, const std::string& text) {
  std::error_code error;
  std::filesystem::create_directories(path.parent_path(), error);
  if (error) throw SystemError(fmt::format("can't make {}", path.parent_path().string()), error.value());
  std::ofstream file(path, std::ios::binary | std::ios::trunc);
  file << text;
  file.close();
  if (!file) throw SystemError(fmt::format("can't write {}", path.string()), errno);
}

}  // namespace

std::string manual_page(const CLI::App& app, const std::string& command) {
  const CLI::App& own = command.empty() ? app : *app.get_subcommand(command);
  std::string text = fmt::format(".TH {} 1 \"\" \"retinue {}\" \"User Commands\"\n", upper(literal(name_of(own, "-"))),
                                 literal(app.version()));
  text += fmt::format(".SH NAME\n{} \\- {}\n", literal(name_of(own, "-")), literal(own.get_description()));
  text += fmt::format(".SH SYNOPSIS\n.nf\n{}\n.fi\n", literal(synopsis(own)));
  text += described("ARGUMENTS", own.get_options([](const CLI::Option* option) {
    return is_shown(option) && option->get_positional();
  }));
  for (const std::string& group : own.get_groups())
    text += described(upper(group), own.get_options([&group](const CLI::Option* option) {
      return is_shown(option) && !option->get_positional() && option->get_group() == group;
    }));
  text += described_commands(own);
  if (!own.get_footer().empty()) text += fmt::format(".SH NOTES\n.nf\n{}\n.fi\n", literal(own.get_footer()));
  if (!command.empty()) text += ".SH SEE ALSO\n\\fBretinue\\fR(1)\n";
  return text;
}

void write_share_files(const CLI::App& app, const std::filesystem::path& folder) {
  write_file(folder / "man/man1/retinue.1", manual_page(app, ""));
  for (const CLI::App* command : app.get_subcommands(is_shown_command))
    write_file(folder / fmt::format("man/man1/retinue-{}.1", command->get_name()),
               manual_page(app, command->get_name()));
  write_file(folder / "bash-completion/completions/retinue", completion_script(app, "bash"));
  write_file(folder / "fish/vendor_completions.d/retinue.fish", completion_script(app, "fish"));
  const std::string zsh = completion_script(app, "zsh");
  write_file(folder / "zsh/site-functions/_retinue", zsh);
  write_file(folder / "zsh/vendor-completions/_retinue", zsh);  // Where Debian's zsh looks.
}

}  // namespace retinue
