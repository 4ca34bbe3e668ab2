package cli

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/alecthomas/kong"
)

// writePages writes the page of a command, such as councild-report-bias.1, and the pages of the commands below it.
func writePages(directory string, node *kong.Node, name, version string) error {
	file := filepath.Join(directory, name+".1")
	if err := os.WriteFile(file, []byte(manPage(node, name, version)), 0o644); err != nil { //nolint:gosec // Everyone may read a manual.
		return err
	}
	for _, child := range node.Children {
		if err := writePages(directory, child, name+"-"+child.Name, version); err != nil {
			return err
		}
	}
	return nil
}

// manPage returns the manual page of a command in roff, the format of man.
func manPage(node *kong.Node, name, version string) string {
	var b strings.Builder
	section := func(title string) { fmt.Fprintf(&b, ".SH %s\n", title) }
	item := func(term, text string) { fmt.Fprintf(&b, ".TP\n.B %s\n%s\n", roff(term), roff(text)) }
	fmt.Fprintf(&b, ".TH %s 1 \"\" \"councild %s\"\n", strings.ToUpper(name), version)
	summary, description := node.Help, node.Detail
	if node.Parent == nil { // The help of the program has paragraphs.
		summary, description, _ = strings.Cut(node.Help, "\n\n")
	}
	section("NAME")
	fmt.Fprintf(&b, "%s \\- %s\n", name, roff(summary))
	section("SYNOPSIS")
	fmt.Fprintf(&b, ".B councild %s\n", roff(strings.TrimSpace(node.Summary())))
	if description != "" {
		section("DESCRIPTION")
		fmt.Fprintln(&b, strings.ReplaceAll(roff(description), "\n\n", "\n.PP\n"))
	}
	if len(node.Positional) > 0 {
		section("ARGUMENTS")
		for _, value := range node.Positional {
			item(value.Summary(), value.Help)
		}
	}
	if len(node.Flags) > 0 {
		section("OPTIONS")
		for _, flag := range node.Flags {
			if !flag.Hidden {
				item(flag.String(), flag.Help)
			}
		}
	}
	var related []string
	if node.Parent != nil {
		related = append(related, name[:strings.LastIndex(name, "-"+node.Name)])
	}
	if len(node.Children) > 0 {
		section("COMMANDS")
		for _, child := range node.Children {
			item(child.Name, child.Help)
			related = append(related, name+"-"+child.Name)
		}
	}
	section("SEE ALSO")
	for i, page := range related {
		end := ","
		if i == len(related)-1 {
			end = ""
		}
		fmt.Fprintf(&b, ".BR %s (1)%s\n", roff(page), end)
	}
	return b.String()
}

// roff escapes a text for roff. Its lines must not begin with a dot or an apostrophe, which begin requests.
func roff(text string) string {
	text = strings.NewReplacer(`\`, `\e`, `-`, `\-`).Replace(text)
	lines := strings.Split(text, "\n")
	for i, line := range lines {
		if strings.HasPrefix(line, ".") || strings.HasPrefix(line, "'") {
			lines[i] = `\&` + line
		}
	}
	return strings.Join(lines, "\n")
}
