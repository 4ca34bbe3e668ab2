// Command dist makes the files of a release: for each target an archive and an SBOM, packages for Debian and Red Hat, an
// image for two platforms, and SHA256SUMS. The same commit gives the same bytes on every machine,
// because all times are the time of the commit, and all tools have pinned versions.
package main

import (
	"bytes"
	"cmp"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"flag"
	"fmt"
	"io/fs"
	"log"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// target is a system that a release runs on.
type target struct{ os, arch string }

func (t target) String() string { return t.os + "_" + t.arch }

// environment returns the environment of Go's commands. Nothing that the caller set may change the binary.
func (t target) environment() []string {
	return append(os.Environ(), "GOOS="+t.os, "GOARCH="+t.arch, "CGO_ENABLED=0", "GOFLAGS=", "GOWORK=off",
		"GOEXPERIMENT=", "GOFIPS140=off", "GOAMD64=v1", "GOARM64=v8.0")
}

func targets() []target {
	return []target{{"linux", "amd64"}, {"linux", "arm64"}, {"darwin", "amd64"}, {"darwin", "arm64"}}
}

// release has what all steps need.
type release struct {
	root    string    // the repository
	out     string    // the directory of the finished files
	work    string    // a directory for files that are needed on the way
	tag     string    // the version as councild version prints it, such as v0.1.0
	version string    // the version in names of files, such as 0.1.0
	commit  string    // the hash of the commit
	time    time.Time // the time of the commit, which every file gets
}

func main() {
	log.SetFlags(0)
	log.SetPrefix("dist: ")
	out := flag.String("out", "../../dist", "the directory that receives the files; everything in it is removed first")
	tag := flag.String("version", "", "the version; \"\" takes the name that git gives to the commit")
	flag.Parse()
	if err := run(*out, *tag); err != nil {
		log.Fatal(err)
	}
}

func run(out, tag string) error {
	syscall.Umask(0o022)
	r, err := newRelease(out, tag)
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(r.work) }()
	files, err := r.licenceFiles()
	if err != nil {
		return err
	}
	text, err := licences(files)
	if err != nil {
		return err
	}
	trees := map[target]string{}
	for _, t := range targets() {
		log.Printf("building %s for %s", r.tag, t)
		if trees[t], err = r.tree(t, text); err != nil {
			return err
		}
		name := filepath.Join(r.out, filepath.Base(trees[t]))
		if err := r.archive(name+".tar.gz", trees[t]); err != nil {
			return err
		}
		if err := r.sbom(name+".cdx.json", filepath.Join(trees[t], "councild"), files); err != nil {
			return err
		}
		if t.os == "linux" {
			if err := r.packages(trees[t], t.arch); err != nil {
				return err
			}
		}
	}
	if err := r.image(trees); err != nil {
		return err
	}
	return r.sums()
}

func newRelease(out, tag string) (release, error) {
	r := release{tag: tag}
	root, err := output(nil, "git", "rev-parse", "--show-toplevel")
	if err != nil {
		return r, err
	}
	r.root = root
	if r.commit, err = r.git("rev-parse", "HEAD"); err != nil {
		return r, err
	}
	if r.tag == "" {
		if r.tag, err = r.git("describe", "--tags", "--always", "--dirty"); err != nil {
			return r, err
		}
	}
	r.version = strings.TrimPrefix(r.tag, "v")
	seconds := os.Getenv("SOURCE_DATE_EPOCH")
	if seconds == "" {
		if seconds, err = r.git("log", "-1", "--format=%ct"); err != nil {
			return r, err
		}
	}
	epoch, err := strconv.ParseInt(seconds, 10, 64)
	if err != nil {
		return r, fmt.Errorf("SOURCE_DATE_EPOCH: %w", err)
	}
	r.time = time.Unix(epoch, 0).UTC()
	if r.out, err = filepath.Abs(out); err != nil {
		return r, err
	}
	if err := os.RemoveAll(r.out); err != nil {
		return r, err
	}
	if err := os.MkdirAll(r.out, 0o755); err != nil { //nolint:gosec // Everyone may read a release.
		return r, err
	}
	r.work, err = os.MkdirTemp("", "councild-dist-")
	return r, err
}

// output runs a command and returns what it prints, without blanks at the end. Its error has what the command printed
// on stderr. Without an environment, the command has the one of this process.
func output(environment []string, name string, args ...string) (string, error) {
	var stderr bytes.Buffer
	cmd := exec.CommandContext(context.Background(), name, args...)
	cmd.Env = environment
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("%s: %w: %s", strings.Join(cmd.Args, " "), err, stderr.String())
	}
	return strings.TrimSpace(string(out)), nil
}

func (r release) git(args ...string) (string, error) {
	return output(nil, "git", append([]string{"-C", r.root}, args...)...)
}

// golang runs Go for a target in the repository.
func (r release) golang(t target, args ...string) (string, error) {
	return output(t.environment(), "go", append([]string{"-C", r.root}, args...)...)
}

// tree makes a directory with what the archive of a target holds, and returns its path.
func (r release) tree(t target, licences []byte) (string, error) {
	dir := filepath.Join(r.work, "councild_"+r.version+"_"+t.String())
	tracked, err := r.git("ls-files", "--", ":(glob)*.md", "LICENSE", ".env.example", "api", "deploy", "docs", "examples",
		"skills", "server.json", "llms.txt")
	if err != nil {
		return "", err
	}
	for name := range strings.Lines(tracked) {
		name = strings.TrimSpace(name)
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		data, err := os.ReadFile(filepath.Join(r.root, name))
		if err != nil {
			return "", err
		}
		if err := write(filepath.Join(dir, name), data, 0o644); err != nil {
			return "", err
		}
	}
	if err := write(filepath.Join(dir, "THIRD_PARTY_LICENSES.txt"), licences, 0o644); err != nil {
		return "", err
	}
	if err := r.helpers(dir); err != nil {
		return "", err
	}
	// The binary keeps its build ID. Without one, the linker gives a binary for macOS no identifier.
	if _, err := r.golang(t, "build", "-trimpath", "-buildvcs=false", "-ldflags", "-s -w -X main.version="+r.tag,
		"-o", filepath.Join(dir, "councild"), "./cmd/councild"); err != nil {
		return "", err
	}
	return dir, stamp(dir, r.time)
}

// stamp gives a time to all files of a directory.
func stamp(dir string, when time.Time) error {
	return filepath.WalkDir(dir, func(path string, _ fs.DirEntry, err error) error {
		return cmp.Or(err, os.Chtimes(path, when, when)) //nolint:gosec // The directory is ours alone.
	})
}

// helpers writes the completions and the manual pages. It makes them with a binary for this machine.
func (r release) helpers(dir string) error {
	program := filepath.Join(r.work, "councild")
	if _, err := os.Stat(program); err != nil {
		_, err := output(nil, "go", "-C", r.root, "build", "-ldflags", "-X main.version="+r.tag, "-o", program, "./cmd/councild")
		if err != nil {
			return err
		}
	}
	for shell, name := range map[string]string{"bash": "councild.bash", "zsh": "_councild", "fish": "councild.fish"} {
		script, err := output(nil, program, "completion", shell)
		if err != nil {
			return err
		}
		if err := write(filepath.Join(dir, "completions", name), []byte(script+"\n"), 0o644); err != nil {
			return err
		}
	}
	pages := filepath.Join(dir, "man")
	if err := os.Mkdir(pages, 0o755); err != nil { //nolint:gosec // Everyone may read a manual.
		return err
	}
	_, err := output(nil, program, "version", "--man", pages)
	return err
}

// write writes a file, and makes its directory.
func write(path string, data []byte, mode fs.FileMode) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil { //nolint:gosec // Everyone may read a release.
		return err
	}
	return os.WriteFile(path, data, mode) //nolint:gosec // The caller chooses where the release goes.
}

// archive writes a directory as a compressed archive. The header of gzip has no time.
func (r release) archive(name, dir string) error {
	var b bytes.Buffer
	packed, err := gzip.NewWriterLevel(&b, gzip.BestCompression)
	if err != nil {
		return err
	}
	tree, err := directory(dir, filepath.Base(dir)+"/")
	if err != nil {
		return err
	}
	if err := pack(packed, tree, r.time); err != nil {
		return err
	}
	if err := packed.Close(); err != nil {
		return err
	}
	return write(name, b.Bytes(), 0o644)
}

// sums writes SHA256SUMS.
func (r release) sums() error {
	files, err := os.ReadDir(r.out)
	if err != nil {
		return err
	}
	var b strings.Builder
	for _, file := range files { // ReadDir sorts them.
		data, err := os.ReadFile(filepath.Join(r.out, file.Name()))
		if err != nil {
			return err
		}
		fmt.Fprintf(&b, "%x  %s\n", sha256.Sum256(data), file.Name())
	}
	fmt.Print(b.String())
	return write(filepath.Join(r.out, "SHA256SUMS"), []byte(b.String()), 0o644)
}

// packageVersion returns the version for Debian and Red Hat, which must begin with a digit. A commit without a tag gets a
// version that sorts before every release.
func (r release) packageVersion() string {
	if regexp.MustCompile(`^\d+\.`).MatchString(r.version) {
		return r.version
	}
	return "0.0.0~" + strings.ReplaceAll(r.version, "-", ".")
}
