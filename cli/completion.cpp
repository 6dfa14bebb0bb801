#include "completion.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <vector>

#include "retinue/base/error.h"
#include "text_lists.h"

namespace retinue {
namespace {

/// Flags in their dashed spelling; of those only that take a value, where `with_value` is asked for.
enum class Which { kAll, kWithValue };

std::string flags_of(const CLI::App& app, Which which) {
  std::string flags;
  for (const CLI::Option* option : app.get_options()) {
    if (which == Which::kWithValue && option->get_items_expected_max() == 0) continue;
    for (const std::string& name : option->get_snames()) flags += (flags.empty() ? "-" : " -") + name;
    for (const std::string& name : option->get_lnames())
      if (name.find('_') == std::string::npos) flags += (flags.empty() ? "--" : " --") + name;
  }
  return flags;
}

/// What a flag's value may be, where that is a few words.
struct Values {
  std::vector<std::string> flags;
  const char* words;
};

std::vector<Values> known_values() {
  return {{{"-n", "--nproc-per-node"}, "auto cpu gpu 1 2 4 8"},
          {{"-r", "--redirects", "-t", "--tee"}, "0 1 2 3"},
          {{"--numa-binding"}, "node socket exclusive core-complex"},
          {{"--rdzv-backend"}, "static c10d"},
          {{"--start-method"}, "spawn fork forkserver"},
          {{"--stdin"}, "none 0 1 2 3"}};
}

std::string values_of(const std::string& flag) {
  for (const Values& values : known_values())
    if (std::ranges::count(values.flags, flag) > 0) return values.words;
  return "";
}

/// A branch of bash's case for each of them.
std::string bash_values() {
  std::string branches;
  for (const Values& values : known_values())
    branches += fmt::format("      {}) COMPREPLY=($(compgen -W \"{}\" -- \"$word\")) ;;\n",
                            fmt::join(values.flags, "|"), values.words);
  return branches;
}

constexpr const char* kBash = R"sh(# retinue's completion for bash: eval "$(retinue completion bash)"
_retinue() {{
  local word="${{COMP_WORDS[COMP_CWORD]}}" command="${{COMP_WORDS[1]}}" flag at
  if [ "$COMP_CWORD" -eq 1 ]; then
    COMPREPLY=($(compgen -W "{commands}" -- "$word"))
    return
  fi
  case "$command" in
    completion) COMPREPLY=($(compgen -W "bash zsh fish" -- "$word")); return ;;
    ps) COMPREPLY=($(compgen -W "--all --json --help" -- "$word")); return ;;
    stop|stacks|debug|trace|top)
      case "$word" in
        -*) COMPREPLY=($(compgen -W "$(retinue "$command" --help | grep -o -- ' --[a-z]*')" -- "$word")) ;;
        *) COMPREPLY=($(compgen -W "$(retinue ps 2>/dev/null | sed -n 's/^\([^ ].*\)  (id .*/\1/p')" -- "$word")) ;;
      esac
      return ;;
    run) ;;
    *) COMPREPLY=($(compgen -W "--help" -- "$word")); return ;;
  esac
  at=2
  while [ "$at" -lt "$COMP_CWORD" ]; do
    case "${{COMP_WORDS[at]}}" in
      -*)
        flag="${{COMP_WORDS[at]}}"
        at=$((at + 1))
        case " {with_value} " in
          *" $flag "*)  # Its value is the next word, or the one behind a word of its own, `=`.
            [ "${{COMP_WORDS[at]}}" != = ] || at=$((at + 1))
            at=$((at + 1)) ;;
        esac ;;
      *) mapfile -t COMPREPLY < <(compgen -f -- "$word"); return ;;
    esac
  done
  if [ "$at" -gt "$COMP_CWORD" ]; then
    [ "$word" != = ] || word=
    case "$flag" in
{values}      --log-dir|--trace-dir) mapfile -t COMPREPLY < <(compgen -d -- "$word") ;;
    esac
    return
  fi
  case "$word" in
    -*) COMPREPLY=($(compgen -W "{flags}" -- "$word")) ;;
    *) mapfile -t COMPREPLY < <(compgen -c -- "$word"; compgen -f -- "$word") ;;
  esac
}}
complete -o filenames -F _retinue retinue
)sh";

constexpr const char* kZsh = R"sh(#compdef retinue
# retinue's completion for zsh: source <(retinue completion zsh), or save it as _retinue in a folder of $fpath
_retinue() {{
  local -a flags
  flags=({specs})
  if (( CURRENT == 2 )); then
    compadd -- {commands}
    return
  fi
  case "$words[2]" in
    completion) compadd -- bash zsh fish ;;
    ps) compadd -- --all --json --help ;;
    stop|stacks|debug|trace|top)
      compadd -- ${{(f)"$(retinue ps 2>/dev/null | sed -n 's/^\([^ ].*\)  (id .*/\1/p')"}}
      compadd -- ${{(f)"$(retinue $words[2] --help | grep -o -- '--[a-z]*')"}} ;;
    run)
      shift words
      (( CURRENT-- ))
      _arguments -s -S $flags '*:::program:_normal' ;;
    *) compadd -- --help ;;
  esac
}}
if [ "$funcstack[1]" = _retinue ]; then _retinue "$@"; else compdef _retinue retinue; fi
)sh";

/// "--log-dir[help]:value:" as zsh's _arguments wants it.
std::string zsh_specs(const CLI::App& app) {
  std::string specs;
  for (const CLI::Option* option : app.get_options()) {
    std::string help;
    for (const char c : option->get_description())
      help += c == '[' || c == ']' || c == ':' || c == '\'' ? std::string(" ") : std::string(1, c);
    std::vector<std::string> names;
    for (const std::string& name : option->get_snames()) names.push_back("-" + name);
    for (const std::string& name : option->get_lnames())
      if (name.find('_') == std::string::npos) names.push_back("--" + name);
    for (const std::string& name : names) {
      std::string value;
      if (option->get_items_expected_max() != 0) value = ":value:";
      if (const std::string words = values_of(name); !words.empty()) value = fmt::format(":value:({})", words);
      if (name == "--log-dir" || name == "--trace-dir") value = ":folder:_files -/";
      specs += fmt::format("\n    '{}[{}]{}'", name, help, value);
    }
  }
  return specs;
}

constexpr const char* kFish = R"sh(# retinue's completion for fish: retinue completion fish | source
function __retinue_in
  set -l words (commandline -opc)
  test (count $words) -ge 2; and contains -- $words[2] $argv
end
# True until the command line names the program of `retinue run`.
function __retinue_before_program
  __retinue_in run; or return 1
  set -l words (commandline -opc)
  set -e words[1..2]
  set -l is_value no
  for word in $words
    if test $is_value = yes
      set is_value no
    else if contains -- $word {with_value}
      set is_value yes
    else if not string match -q -- '-*' $word
      return 1
    end
  end
end
function __retinue_in_program
  __retinue_in run; and not __retinue_before_program
end
complete -c retinue -f
complete -c retinue -n 'test (count (commandline -opc)) -eq 1' -a '{commands}'
complete -c retinue -n __retinue_before_program -a '(__fish_complete_command)'
complete -c retinue -n __retinue_in_program -F
complete -c retinue -n '__retinue_in completion' -a 'bash zsh fish'
complete -c retinue -n '__retinue_in stop stacks debug trace top' -a "(retinue ps 2>/dev/null | sed -n 's/^\([^ ].*\)  (id .*/\1/p')"
{specs})sh";

/// A line for each flag of `app`, for where `condition` holds.
std::string fish_specs(const CLI::App& app, const std::string& condition) {
  std::string specs;
  for (const CLI::Option* option : app.get_options()) {
    if (option->get_positional()) continue;
    std::string names;
    std::string words;
    for (const std::string& name : option->get_snames()) {
      names += " -s " + name;
      words = values_of("-" + name);
    }
    for (const std::string& name : option->get_lnames()) {
      if (name.find('_') != std::string::npos) continue;
      names += " -l " + name;
      words = values_of("--" + name);
    }
    std::string value;
    if (option->get_items_expected_max() != 0) value = fmt::format(" -x -a '{}'", words);
    if (names == " -l log-dir" || names == " -l trace-dir") value = " -x -a '(__fish_complete_directories)'";
    specs += fmt::format("complete -c retinue -n {}{}{} -d {}\n", condition, names, value,
                         shell_quoted(option->get_description()));
  }
  return specs;
}

std::string all_fish_specs(const CLI::App& app) {
  std::string specs;
  for (const CLI::App* command : app.get_subcommands([](const CLI::App*) { return true; })) {
    const std::string& name = command->get_name();
    specs += fish_specs(*command, name == "run" ? "__retinue_before_program" : fmt::format("'__retinue_in {}'", name));
  }
  return specs;
}

}  // namespace

std::string completion_script(const CLI::App& app, const std::string& shell) {
  if (shell != "bash" && shell != "zsh" && shell != "fish")
    throw UsageError(fmt::format("retinue completion: the shell '{}' is not supported; give bash, zsh or fish", shell));
  std::string commands;
  const CLI::App* run = nullptr;
  for (const CLI::App* command : app.get_subcommands([](const CLI::App*) { return true; })) {
    commands += command->get_name() + " ";
    if (command->get_name() == "run") run = command;
  }
  commands += "--help --version";
  if (shell == "zsh") return fmt::format(kZsh, fmt::arg("specs", zsh_specs(*run)), fmt::arg("commands", commands));
  if (shell == "fish")
    return fmt::format(kFish, fmt::arg("specs", all_fish_specs(app)), fmt::arg("commands", commands),
                       fmt::arg("with_value", flags_of(*run, Which::kWithValue)));
  return fmt::format(kBash, fmt::arg("values", bash_values()), fmt::arg("commands", commands),
                     fmt::arg("with_value", flags_of(*run, Which::kWithValue)),
                     fmt::arg("flags", flags_of(*run, Which::kAll)));
}

}  // namespace retinue
