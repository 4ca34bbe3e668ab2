package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// process is a process that was started, with the address at which it answers.
type process struct {
	cmd *exec.Cmd
	url string
}

// stop ends the process and waits for it.
func (p *process) stop() {
	_ = p.cmd.Process.Signal(syscall.SIGTERM) // it may have ended
	_ = p.cmd.Wait()
}

// cpu returns the processor time of the process so far, in us. The kernel counts it in hundredths of a second.
func (p *process) cpu() float64 {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", p.cmd.Process.Pid))
	if err != nil {
		return 0
	}
	_, rest, _ := strings.Cut(string(text), ") ")
	fields := strings.Fields(rest)
	user, _ := strconv.Atoi(fields[11])
	system, _ := strconv.Atoi(fields[12])
	return float64(user+system) * 10_000
}

// memory returns a figure of a process's status in KB, such as VmRSS.
func memory(pid int, figure string) int64 {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0
	}
	_, rest, _ := strings.Cut(string(text), figure+":")
	fields := strings.Fields(rest)
	if len(fields) == 0 {
		return 0
	}
	kb, _ := strconv.ParseInt(fields[0], 10, 64)
	return kb
}

// workplace is a directory with the programs that are measured.
type workplace struct {
	dir      string
	councild string
	self     string
	env      []string // the variables of each daemon, besides its defaults
	runs     int      // how many daemons were started so far
}

// newWorkplace builds councild from the repository at root.
func newWorkplace(ctx context.Context, root string) (*workplace, error) {
	dir, err := os.MkdirTemp("", "councild-bench-")
	if err != nil {
		return nil, err
	}
	self, err := os.Executable()
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	w := &workplace{dir: dir, councild: filepath.Join(dir, "councild"), self: self}
	build := exec.CommandContext(ctx, "go", "build", "-trimpath", "-ldflags", "-s -w", "-o", w.councild, "./cmd/councild")
	build.Dir, build.Env = root, append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		return nil, errors.Join(fmt.Errorf("building councild: %w\n%s", err, out), os.RemoveAll(dir))
	}
	return w, nil
}

func (w *workplace) close() { _ = os.RemoveAll(w.dir) }

func started(ctx context.Context, program string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, program, args...)
	// It has a process group of its own, so that the processes that go test starts end with it.
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGTERM) }
	cmd.WaitDelay = 40 * time.Second
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	return cmd
}

// provider starts a provider.
func (w *workplace) provider(ctx context.Context, args ...string) (*process, error) {
	cmd := started(ctx, w.self, append([]string{"provider"}, args...)...)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	p := &process{cmd, strings.TrimSpace(line)}
	if err != nil {
		p.stop()
	}
	return p, err
}

// stats returns what the provider has seen.
func (p *process) stats() (s stats, err error) {
	resp, err := http.Get(p.url + "/stats")
	if err != nil {
		return s, err
	}
	defer resp.Body.Close()
	return s, json.NewDecoder(resp.Body).Decode(&s)
}

var listening = regexp.MustCompile(`"msg":"listening","url":"([^"]+)"`)

// daemon starts councild with its default settings, except for the limits of a load test, and waits until it answers.
func (w *workplace) daemon(ctx context.Context, provider *process, members int, env ...string) (*process, time.Duration, error) {
	w.runs++
	dir := filepath.Join(w.dir, fmt.Sprintf("daemon%d", w.runs))
	if err := os.Mkdir(dir, 0o700); err != nil {
		return nil, 0, err
	}
	models := make([]string, members)
	for i := range models {
		models[i] = fmt.Sprintf("maker/m%d", i+1)
	}
	log, err := os.Create(filepath.Join(dir, "log"))
	if err != nil {
		return nil, 0, err
	}
	defer log.Close()
	cmd := started(ctx, w.councild, "serve")
	cmd.Stderr = log
	// The daemon must not get the settings of the user who measures.
	cmd.Env = slices.DeleteFunc(os.Environ(), func(entry string) bool {
		return regexp.MustCompile(`^(LLM_COUNCIL_|OTEL_|GOGC=|GOMEMLIMIT=|GOMAXPROCS=|GODEBUG=)`).MatchString(entry)
	})
	cmd.Env = append(cmd.Env,
		"LLM_COUNCIL_ADDR=127.0.0.1:0", "LLM_COUNCIL_BIAS_STORE="+filepath.Join(dir, "records.jsonl"),
		"LLM_COUNCIL_BASE_URL="+provider.url+"/v1", "LLM_COUNCIL_API_KEY=key",
		"LLM_COUNCIL_MODELS="+strings.Join(models, ","),
		"LLM_COUNCIL_MAX_SESSIONS=8192", "LLM_COUNCIL_MAX_MODELS=64")
	cmd.Env = append(append(cmd.Env, w.env...), env...)
	begin := time.Now()
	if err := cmd.Start(); err != nil {
		return nil, 0, err
	}
	p := &process{cmd: cmd}
	for time.Since(begin) < 10*time.Second {
		text, _ := os.ReadFile(log.Name())
		if m := listening.FindSubmatch(text); m != nil {
			p.url = string(m[1])
			if resp, err := http.Get(p.url + "/readyz"); err == nil {
				_ = resp.Body.Close()
				if resp.StatusCode == http.StatusOK {
					return p, time.Since(begin), nil
				}
			}
		}
		time.Sleep(time.Millisecond)
	}
	p.stop()
	text, _ := os.ReadFile(log.Name())
	return nil, 0, fmt.Errorf("councild did not start:\n%s", text)
}

// worker is a process of this program that carries out plans, one after the other.
type worker struct {
	cmd *exec.Cmd
	in  io.WriteCloser
	out *json.Decoder
}

func (w *workplace) worker(ctx context.Context, args ...string) (*worker, error) {
	cmd := started(ctx, w.self, args...)
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	return &worker{cmd, in, json.NewDecoder(out)}, cmd.Start()
}

func (k *worker) run(p plan) (o outcome, err error) {
	name := strings.Join(k.cmd.Args[1:], " ")
	if err := json.NewEncoder(k.in).Encode(p); err != nil {
		return o, fmt.Errorf("%s: %w", name, err)
	}
	if err := k.out.Decode(&o); err != nil {
		return o, fmt.Errorf("%s: %w", name, err)
	}
	if o.Sessions == 0 {
		return o, fmt.Errorf("%s: no session succeeded: %s", name, o.Why)
	}
	return o, nil
}

func (k *worker) stop() {
	_ = k.in.Close() // Without further plans, the worker ends.
	_ = k.cmd.Wait()
}

// expense is how much time and memory a program took.
type expense struct {
	wall   time.Duration
	cpu    time.Duration // user and system
	peakKB int64
}

// spent is a run of a program to its end. It returns how much time and memory the program took.
func spent(ctx context.Context, program string, args ...string) (expense, error) {
	cmd := started(ctx, program, args...)
	var text bytes.Buffer
	cmd.Stdout, cmd.Stderr = io.Discard, &text
	begin := time.Now()
	if err := cmd.Run(); err != nil {
		return expense{}, fmt.Errorf("%s %s: %w: %s", program, strings.Join(args, " "), err, text.String())
	}
	e := expense{wall: time.Since(begin), cpu: cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()}
	usage, ok := cmd.ProcessState.SysUsage().(*syscall.Rusage)
	if !ok {
		return e, errors.New("this system does not report the time and memory of a process")
	}
	e.peakKB = usage.Maxrss
	return e, nil
}

// metric returns the sum of a metric of a daemon.
func metric(url, name string) (float64, error) {
	resp, err := http.Get(url + "/metrics")
	if err != nil {
		return 0, err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		return 0, err
	}
	m := regexp.MustCompile(`(?m)^` + name + ` (\S+)$`).FindSubmatch(text)
	if m == nil {
		return 0, fmt.Errorf("there is no metric %s", name)
	}
	return strconv.ParseFloat(string(m[1]), 64)
}
