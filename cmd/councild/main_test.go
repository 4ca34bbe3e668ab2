package main

import (
	"bufio"
	"encoding/json"
	"io"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/councild/councild/internal/cli"
	"github.com/councild/councild/internal/config"
	"github.com/councild/councild/internal/testkit"
	"github.com/councild/councild/internal/testkit/daemontest"
)

// TestMain lets the test binary run as councild when the first of these variables is set.
// The second variable limits its descriptors. With the third one, a limit of the size of
// files is an error of writing, and not the end of the process. The fourth variable holds values of config.Constants as JSON.
func TestMain(m *testing.M) {
	if os.Getenv("COUNCILD_TEST_MAIN") == "1" {
		if n, err := strconv.ParseUint(os.Getenv("COUNCILD_TEST_DESCRIPTORS"), 10, 64); err == nil {
			if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &syscall.Rlimit{Cur: n, Max: n}); err != nil {
				panic(err)
			}
		}
		if os.Getenv("COUNCILD_TEST_FILES") == "1" {
			signal.Ignore(syscall.SIGXFSZ)
		}
		os.Exit(run(cli.IO{Adjust: func(cfg *config.Config) {
			if text := os.Getenv("COUNCILD_TEST_CONSTANTS"); text != "" {
				if err := json.Unmarshal([]byte(text), &cfg.Constants); err != nil {
					panic(err)
				}
			}
		}}))
	}
	if os.Getenv("COUNCILD_TEST_CURL") == "1" {
		os.Exit(curl(os.Args[1:]))
	}
	os.Exit(m.Run())
}

// process is a running councild.
type process struct {
	*exec.Cmd
	stdout, stderr *bufio.Reader // to be read before Wait
}

// constants returns a variable that gives a councild under test these constants, by the names of their fields.
func constants(values map[string]any) string {
	text, err := json.Marshal(values)
	if err != nil {
		panic(err)
	}
	return "COUNCILD_TEST_CONSTANTS=" + string(text)
}

// start starts councild with arguments and variables.
func start(t *testing.T, env []string, args ...string) *process {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return startProgram(t, self, env, args...)
}

// startProgram is start for another councild than the one under test.
func startProgram(t *testing.T, program string, env []string, args ...string) *process {
	t.Helper()
	return startProgramWith(t, program, nil, env, args...)
}

// startProgramWith is startProgram with a standard input, nil for an empty one.
func startProgramWith(t *testing.T, program string, stdin io.Reader, env []string, args ...string) *process {
	t.Helper()
	p := &process{Cmd: exec.CommandContext(t.Context(), program, args...)}
	p.Stdin = stdin
	p.Env = append(os.Environ(), "COUNCILD_TEST_MAIN=1", "TMPDIR="+t.TempDir(), "HOME="+t.TempDir())
	for _, entry := range os.Environ() {
		if name, _, _ := strings.Cut(entry, "="); strings.HasPrefix(name, "LLM_COUNCIL_") {
			p.Env = append(p.Env, name+"=")
		}
	}
	p.Env = append(p.Env, env...)
	out, err := p.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	log, err := p.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	p.stdout, p.stderr = bufio.NewReader(out), bufio.NewReader(log)
	if err := p.Start(); err != nil {
		t.Fatal(err)
	}
	return p
}

// line reads up to the first line that holds text, and returns the rest of that line.
func line(t *testing.T, r *bufio.Reader, text string) string {
	t.Helper()
	for {
		line, err := r.ReadString('\n')
		if _, rest, ok := strings.Cut(line, text); ok {
			return strings.TrimSpace(rest)
		}
		if err != nil {
			t.Fatalf("no line with %q: %v", text, err)
		}
	}
}

func TestSignalStopsTheDemo(t *testing.T) {
	testkit.Slow(t)
	for _, signal := range []os.Signal{os.Interrupt, syscall.SIGTERM} {
		p := start(t, nil, "demo", "--addr", "127.0.0.1:0")
		url := line(t, p.stdout, "answers at ")
		if s := (daemontest.Caller{Base: url}).Ask(t, `{"query":"Why is the sky blue?"}`); !s.Persisted {
			t.Errorf("the session is not persisted: %v", s.Metadata.Warnings)
		}
		if err := p.Process.Signal(signal); err != nil {
			t.Fatal(err)
		}
		if err := p.Wait(); err != nil {
			t.Errorf("%v: %v", signal, err)
		}
	}
}

func TestSecondSignalEndsAtOnce(t *testing.T) {
	// A member that takes 3 seconds keeps the session, and so the drain, going.
	p := start(t, []string{"LLM_COUNCIL_DRAIN_TIMEOUT=1h"}, "demo", "--addr", "127.0.0.1:0")
	url := line(t, p.stdout, "answers at ")
	gone := make(chan struct{})
	go func() {
		defer close(gone)
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url+"/v1/council",
			strings.NewReader(`{"query":"x","models":["sim:slow","sim:slow"]}`))
		if err != nil {
			t.Error(err)
			return
		}
		if resp, err := http.DefaultClient.Do(req); err == nil {
			_ = resp.Body.Close()
			t.Errorf("the session answered %s", resp.Status)
		}
	}()
	line(t, p.stderr, "session started")
	if err := p.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	line(t, p.stderr, "a second signal ends at once")
	if err := p.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	err := p.Wait()
	if p.ProcessState.ExitCode() != cli.ExitInterrupted {
		t.Errorf("ended with %v", err)
	}
	<-gone
}

func TestSecondProcessIsRefused(t *testing.T) {
	env := []string{
		"LLM_COUNCIL_ADDR=127.0.0.1:0", "LLM_COUNCIL_MODELS=sim:amber,sim:birch",
		"LLM_COUNCIL_BIAS_STORE=" + filepath.Join(t.TempDir(), "records.jsonl"),
	}
	first := start(t, env, "serve")
	defer func() {
		_ = first.Process.Signal(os.Interrupt)
		_ = first.Wait()
	}()
	line(t, first.stderr, "listening")
	second := start(t, env, "serve")
	said, err := io.ReadAll(second.stderr)
	if err != nil {
		t.Fatal(err)
	}
	err = second.Wait()
	if second.ProcessState.ExitCode() != 1 || !strings.Contains(string(said), "is held by process "+strconv.Itoa(first.Process.Pid)) {
		t.Errorf("%v: %s", err, said)
	}
}
