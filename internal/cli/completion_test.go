package cli

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// bash itself completes what the script says.
func TestCompletionInBash(t *testing.T) {
	code, script, stderr := command(t, "completion", "bash")
	if code != exitOK {
		t.Fatal(stderr)
	}
	file := filepath.Join(t.TempDir(), "councild.bash")
	if err := os.WriteFile(file, []byte(script), 0o600); err != nil {
		t.Fatal(err)
	}
	for line, want := range map[string]string{
		"councild s":                    "sessions serve store",
		"councild ask --c":              "--council --chairman --category --convene",
		"councild ask --quiet --follow": "--follow",
		"councild config roster ":       "check show --help",
		"councild bias":                 "",
		"councild sessions ":            "list show delete accept --help",
		"councild sessions list --j":    "--json",
		"councild completion z":         "zsh",
		"councild ask --nothing":        "",
	} {
		const ask = `source "$1"; COMP_WORDS=($2); [[ $2 == *' ' ]] && COMP_WORDS+=(""); COMP_CWORD=$((${#COMP_WORDS[@]} - 1))
_councild; complete -p councild >/dev/null && echo "${COMPREPLY[*]}"`
		out, err := exec.CommandContext(t.Context(), "bash", "-c", ask, "bash", file, line).CombinedOutput()
		if err != nil || strings.TrimSpace(string(out)) != want {
			t.Errorf("%q is completed to %q, want %q: %v", line, out, want, err)
		}
	}
}

// The scripts of the other shells hold every command, and each flag with its command.
func TestCompletionOfOtherShells(t *testing.T) {
	for shell, wants := range map[string][]string{
		"zsh": {
			"#compdef councild\n", "'') candidates='ask judge gate sessions mcp compare ", "'/sessions/list') candidates='--server --search --status --limit --json --help' ;;",
			"compadd -- ${=candidates} || _files\n",
		},
		"fish": {
			"complete -c councild -n '__fish_use_subcommand' -a check -d 'Test addresses",
			"complete -c councild -n '__fish_seen_subcommand_from sessions; and __fish_seen_subcommand_from list' -l json -d 'Print the " +
				"list as JSON.'",
			`with the first of LLM_COUNCIL_API_TOKENS`, `The daemon\'s URL`,
		},
	} {
		code, script, stderr := command(t, "completion", shell)
		if code != exitOK {
			t.Errorf("exit %d: %s", code, stderr)
		}
		for _, want := range wants {
			if !strings.Contains(script, want) {
				t.Errorf("%s: %q is missing: %.2000s", shell, want, script)
			}
		}
	}
	if code, _, stderr := command(t, "completion", "tcsh"); code != exitUsage || !strings.Contains(stderr, "bash") {
		t.Errorf("exit %d: %s", code, stderr)
	}
}
