package cli

import (
	"fmt"
	"io"
	"strings"

	"github.com/alecthomas/kong"
)

type completionCmd struct {
	Shell string `arg:"" enum:"bash,zsh,fish" help:"The shell: ${enum}."`
}

// Help returns the details that --help prints below the summary of the command.
func (completionCmd) Help() string {
	return "bash: put  source <(councild completion bash)  into ~/.bashrc; zsh: write what it prints into the file " +
		"_councild of a directory of $fpath; fish: councild completion fish > " +
		"~/.config/fish/completions/councild.fish"
}

// Run prints the completion script for a shell.
func (c completionCmd) Run(std IO, command *kong.Context) error {
	script := map[string]func([]place) string{
		"bash": bashCompletion,
		"zsh":  zshCompletion,
		"fish": fishCompletion,
	}[c.Shell]
	_, err := io.WriteString(std.Stdout, script(places(command.Model.Node, "")))
	return err
}

// place is the program or one of its commands, with the words that can follow it.
type place struct {
	path  string // "" for the program, or a path such as /sessions/list
	words []word
}

// word is a command or a flag, with its help.
type word struct{ text, help string }

// places returns a place for a node and a place for each node below it. The place of the node comes first.
func places(node *kong.Node, path string) []place {
	here := place{path: path}
	below := make([]place, 0, len(node.Children))
	for _, child := range node.Children {
		here.words = append(here.words, word{child.Name, child.Help})
		below = append(below, places(child, path+"/"+child.Name)...)
	}
	for _, value := range node.Positional {
		for _, choice := range value.EnumSlice() {
			if choice != "" {
				here.words = append(here.words, word{choice, ""})
			}
		}
	}
	for _, flag := range node.Flags {
		if flag.Name != "help" && !flag.Hidden { // Every command has --help, which is added below.
			here.words = append(here.words, word{"--" + flag.Name, flag.Help})
		}
	}
	here.words = append(here.words, word{"--help", "Show what there is to know."})
	return append([]place{here}, below...)
}

// cases returns two parts of a shell's case statements. The string paths is one pattern that matches the paths of all
// places. The string words has one case for each path, with its words.
func cases(all []place) (paths, words string) {
	var known []string
	var b strings.Builder
	for _, p := range all {
		if p.path != "" {
			known = append(known, p.path)
		}
		texts := make([]string, len(p.words))
		for i, w := range p.words {
			texts[i] = w.text
		}
		fmt.Fprintf(&b, "    '%s') candidates='%s' ;;\n", p.path, strings.Join(texts, " "))
	}
	return strings.Join(known, "|"), b.String()
}

func bashCompletion(all []place) string {
	paths, words := cases(all)
	return `_councild() {
  local at= word candidates
  for word in "${COMP_WORDS[@]:1:COMP_CWORD-1}"; do
    case "$at/$word" in
    ` + paths + `) at="$at/$word" ;;
    esac
  done
  case "$at" in
` + words + `  esac
  COMPREPLY=($(compgen -W "$candidates" -- "${COMP_WORDS[COMP_CWORD]}"))
}
complete -o default -F _councild councild
`
}

func zshCompletion(all []place) string {
	paths, cases := cases(all)
	return `#compdef councild
local at= word candidates
for word in "${(@)words[2,CURRENT-1]}"; do
  case "$at/$word" in
  ` + paths + `) at="$at/$word" ;;
  esac
done
case "$at" in
` + cases + `esac
compadd -- ${=candidates} || _files
`
}

func fishCompletion(all []place) string {
	var b strings.Builder
	for _, p := range all {
		commands := strings.Split(strings.TrimPrefix(p.path, "/"), "/")
		condition := "__fish_use_subcommand"
		if p.path != "" {
			condition = "__fish_seen_subcommand_from " + strings.Join(commands, "; and __fish_seen_subcommand_from ")
		}
		for _, w := range p.words {
			what := "-a " + w.text
			if name, isFlag := strings.CutPrefix(w.text, "--"); isFlag {
				what = "-l " + name
			}
			help := strings.NewReplacer(`\`, `\\`, `'`, `\'`).Replace(w.help)
			fmt.Fprintf(&b, "complete -c councild -n '%s' %s -d '%s'\n", condition, what, help)
		}
	}
	return b.String()
}
