package gate

import (
	"fmt"
	"path"
	"regexp"
	"slices"
	"strings"

	"github.com/councild/councild/internal/council"
)

// The reasons why a file is left out.
const (
	leftExcluded  = "excluded"
	leftLock      = "lock file"
	leftVendored  = "vendored"
	leftGenerated = "generated"
	leftBinary    = "binary"
	leftNoLines   = "no changed lines"
)

// The most globs in a list, and the most bytes of a glob.
const (
	maxGlobs = 100
	maxGlob  = 200
)

// leftOut returns why a file is not reviewed, or "".
func (r Request) leftOut(f *file) string {
	matches := func(glob string) bool { return matchGlob(glob, f.name) }
	base := path.Base(f.name)
	switch {
	case len(r.Include) > 0 && !slices.ContainsFunc(r.Include, matches), slices.ContainsFunc(r.Exclude, matches):
		return leftExcluded
	case f.binary:
		return leftBinary
	case strings.HasSuffix(base, ".lock"), slices.Contains(lockFiles(), base):
		return leftLock
	case slices.ContainsFunc(strings.Split(path.Dir(f.name), "/"), isVendor):
		return leftVendored
	case f.generated():
		return leftGenerated
	case len(f.lines) == 0:
		return leftNoLines
	}
	return ""
}

func lockFiles() []string {
	return []string{
		"go.sum", "go.work.sum", "package-lock.json", "npm-shrinkwrap.json", "pnpm-lock.yaml", "bun.lockb",
		"Package.resolved", "packages.lock.json", "gradle.lockfile", ".terraform.lock.hcl", "deno.lock",
	}
}

func isVendor(directory string) bool {
	return slices.Contains([]string{"vendor", "node_modules", "third_party", "bower_components", "Pods"}, directory)
}

var (
	generatedName = regexp.MustCompile(`(\.pb\.go|_pb2(_grpc)?\.pyi?|\.min\.(js|css)|\.(js|css)\.map|\.g\.dart|\.designer\.cs)$`)
	generatedLine = regexp.MustCompile(`Code generated .*DO NOT EDIT|@generated\b`)
)

// maxGeneratedLine is the last line of a file that can say that a program wrote the file.
const maxGeneratedLine = 20

// generated reports whether a program wrote a file. A line that the change adds is no evidence, because a change could
// then hide itself.
func (f *file) generated() bool {
	says := func(l line) bool {
		return l.sign == ' ' && l.at <= maxGeneratedLine && generatedLine.MatchString(l.text)
	}
	return generatedName.MatchString(f.name) || slices.ContainsFunc(f.lines, says)
}

// checkGlobs returns what is wrong with a list of globs.
func checkGlobs(field string, globs []string) (problems []council.FieldError) {
	if len(globs) > maxGlobs {
		return []council.FieldError{{
			Field: field, Message: fmt.Sprintf("%d given, at most %d are allowed", len(globs), maxGlobs), Fix: "give fewer",
		}}
	}
	for i, glob := range globs {
		_, err := path.Match(glob, "")
		if glob == "" || len(glob) > maxGlob || err != nil {
			problems = append(problems, council.FieldError{
				Field: fmt.Sprintf("%s[%d]", field, i), Message: fmt.Sprintf("%.64q is not a glob", glob),
				Fix: fmt.Sprintf("give one of 1 to %d bytes, such as *.md or docs/**", maxGlob),
			})
		}
	}
	return problems
}

// matchGlob reports whether a glob matches a path. A glob without a slash matches the last part of the path. Two stars
// stand for any number of directories, and a slash at the end for everything below the directory.
func matchGlob(glob, name string) bool {
	if !strings.Contains(glob, "/") && glob != "**" {
		ok, _ := path.Match(glob, path.Base(name)) // checkGlobs has checked the glob
		return ok
	}
	if strings.HasSuffix(glob, "/") {
		glob += "**"
	}
	parts := strings.Split(name, "/")
	reached := make([]bool, len(parts)+1) // reached[i] says that the globs so far match the first i parts
	reached[0] = true
	for want := range strings.SplitSeq(strings.TrimPrefix(glob, "/"), "/") {
		next := make([]bool, len(parts)+1)
		for i := range reached {
			if want == "**" {
				next[i] = reached[i] || i > 0 && next[i-1]
			} else if i > 0 && reached[i-1] {
				next[i], _ = path.Match(want, parts[i-1])
			}
		}
		reached = next
	}
	return reached[len(parts)]
}
