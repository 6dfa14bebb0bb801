#include "completion.h"

#include <fmt/format.h>

#include "retinue/base/error.h"

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

constexpr const char* kBash = R"sh(# retinue's completion for bash: eval "$(retinue completion bash)"
_retinue() {{
  local word="${{COMP_WORDS[COMP_CWORD]}}" command="${{COMP_WORDS[1]}}" at
  if [ "$COMP_CWORD" -eq 1 ]; then
    COMPREPLY=($(compgen -W "{commands}" -- "$word"))
    return
  fi
  case "$command" in
    completion) COMPREPLY=($(compgen -W "bash zsh" -- "$word")); return ;;
    ps) COMPREPLY=($(compgen -W "--all --json --help" -- "$word")); return ;;
    stop|stacks|debug)
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
        case " {with_value} " in *" ${{COMP_WORDS[at]}} "*) at=$((at + 1)) ;; esac
        at=$((at + 1)) ;;
      *) COMPREPLY=($(compgen -f -- "$word")); return ;;
    esac
  done
  if [ "$at" -gt "$COMP_CWORD" ]; then
    case "${{COMP_WORDS[COMP_CWORD-1]}}" in
      -n|--nproc-per-node) COMPREPLY=($(compgen -W "auto cpu gpu 1 2 4 8" -- "$word")) ;;
      --log-dir) COMPREPLY=($(compgen -d -- "$word")) ;;
    esac
    return
  fi
  case "$word" in
    -*) COMPREPLY=($(compgen -W "{flags}" -- "$word")) ;;
    *) COMPREPLY=($(compgen -c -- "$word") $(compgen -f -- "$word")) ;;
  esac
}}
complete -o filenames -F _retinue retinue
)sh";

constexpr const char* kZsh = R"sh(#compdef retinue
# retinue's completion for zsh: source <(retinue completion zsh), or as _retinue in a folder of $fpath
_retinue() {{
  local -a flags
  flags=({specs})
  if (( CURRENT == 2 )); then
    compadd -- {commands}
    return
  fi
  case "$words[2]" in
    completion) compadd -- bash zsh ;;
    ps) compadd -- --all --json --help ;;
    stop|stacks|debug)
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
    for (const std::string& name : names)
      specs += fmt::format(
          "\n    '{}[{}]{}'", name, help,
          option->get_items_expected_max() == 0 ? "" : (name == "--log-dir" ? ":folder:_files -/" : ":value:"));
  }
  return specs;
}

}  // namespace

std::string completion_script(const CLI::App& app, const std::string& shell) {
  if (shell != "bash" && shell != "zsh")
    throw UsageError(fmt::format("retinue completion: there is none for '{}'; give bash or zsh", shell));
  std::string commands;
  const CLI::App* run = nullptr;
  for (const CLI::App* command : app.get_subcommands([](const CLI::App*) { return true; })) {
    commands += command->get_name() + " ";
    if (command->get_name() == "run") run = command;
  }
  commands += "--help --version";
  if (shell == "zsh") return fmt::format(kZsh, fmt::arg("specs", zsh_specs(*run)), fmt::arg("commands", commands));
  return fmt::format(kBash, fmt::arg("commands", commands), fmt::arg("with_value", flags_of(*run, Which::kWithValue)),
                     fmt::arg("flags", flags_of(*run, Which::kAll)));
}

}  // namespace retinue
