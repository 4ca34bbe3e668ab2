package main

import (
	"cmp"
	"compress/gzip"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"
)

// figure is a line of the table.
type figure struct {
	name     string
	what     string
	reach    string
	then     string
	measured string
	floors   string
}

// bencher measures figures.
type bencher struct {
	*workplace
	root   string
	rounds int
	quick  bool
	rows   []figure
}

// series are the values of a figure, one a round.
type series []float64

func (s series) median() float64 {
	sorted := slices.Sorted(slices.Values(s))
	return sorted[len(sorted)/2]
}

// String returns the median, and the least and the largest value.
func (s series) String() string {
	return fmt.Sprintf("%s (%s to %s)", short(s.median()), short(slices.Min(s)), short(slices.Max(s)))
}

func short(x float64) string {
	if x >= 1000 {
		return strconv.FormatFloat(x, 'f', 0, 64)
	}
	return strconv.FormatFloat(x, 'g', 3, 64)
}

// count returns n, or a few in a quick run.
func (b *bencher) count(n int) string {
	if b.quick {
		n = max(8, n/50)
	}
	return strconv.Itoa(n)
}

// dwell returns the time of a call, or a short one in a quick run.
func (b *bencher) dwell(span string) string {
	if b.quick {
		return "200ms"
	}
	return span
}

func compare(ctx context.Context, args []string) error {
	flags := flag.NewFlagSet("compare", flag.ContinueOnError)
	root := flags.String("root", "..", "repository of councild")
	rounds := flags.Int("rounds", 3, "rounds of each figure")
	only := flags.String("only", "", "comma list of figures, such as T1,T5; empty: all")
	quick := flags.Bool("quick", false, "a few sessions each: to see that it works, not to measure")
	env := flags.String("env", "", "comma list of variables for the daemon beside what it has by default, such as GOMEMLIMIT=1GiB")
	if err := flags.Parse(args); err != nil {
		return err
	}
	w, err := newWorkplace(ctx, *root)
	if err != nil {
		return err
	}
	defer w.close()
	if *env != "" {
		w.env = strings.Split(*env, ",")
	}
	b := &bencher{workplace: w, root: *root, rounds: *rounds, quick: *quick}
	if b.quick {
		b.rounds = 1
	}
	begun, before := machine(*root), processorTimes()
	time.Sleep(5 * time.Second)
	start := processorTimes()
	others := start.since(before).busy
	var invalid error
	for _, group := range []struct {
		names string
		run   func(context.Context) error
	}{
		{"T1 T4", b.sessions},
		{"T2", b.open},
		{"T3 T6", b.capacity},
		{"T5", b.inFlight},
		{"T7", b.connections},
		{"T8", b.chunks},
		{"T16", b.streamed},
		{"T10", b.report},
		{"T14", b.page},
		{"T15", b.start},
		{"T4 T8 T9 T11 T12 T13", b.benchmarks},
	} {
		if wanted := strings.Split(*only, ","); *only != "" && !slices.ContainsFunc(strings.Fields(group.names), func(name string) bool {
			return slices.Contains(wanted, name)
		}) || b.quick && *only == "" && strings.HasSuffix(group.names, "T13") { // benchmarks take a minute however few their turns
			continue
		}
		fmt.Fprintf(os.Stderr, "%s %s\n", time.Now().Format(time.TimeOnly), group.names)
		if err := group.run(ctx); ctx.Err() != nil {
			invalid = errors.Join(invalid, fmt.Errorf("interrupted at %s: the figures after it are missing", group.names))
			break
		} else if err != nil {
			invalid = errors.Join(invalid, fmt.Errorf("%s: %w", group.names, err))
			b.add(strings.Fields(group.names)[0], group.names, "", "", "", "**invalid**: "+oneLine(err))
		}
	}
	if len(b.rows) == 0 && invalid == nil {
		return fmt.Errorf("no figure has a name of %q", *only)
	}
	b.print()
	fmt.Printf("\n%s; other programs had %.1f %% of the processors just before, other guests of the host %.1f %% during the run\n",
		begun, 100*others, 100*processorTimes().since(start).stolen)
	if others > 0.25 {
		fmt.Printf("\n**Other programs had the processors before this run: figures of time (T2, T3, T6, T10, T11, T15) mean nothing.**\n")
	}
	return invalid
}

// oneLine returns what went wrong as the cell of a table or a comment can hold it.
func oneLine(err error) string {
	text := strings.ReplaceAll(strings.Join(strings.Fields(err.Error()), " "), "|", "/")
	return text[:min(len(text), 300)]
}

func machine(root string) string {
	cpu, _ := os.ReadFile("/proc/cpuinfo")
	model := regexp.MustCompile(`model name\s*: (.*)`).FindSubmatch(cpu)
	name := "unknown processor"
	if model != nil {
		name = string(model[1])
	}
	git := exec.Command("git", "describe", "--always", "--dirty")
	git.Dir = root
	commit, _ := git.Output()
	kernel, _ := os.ReadFile("/proc/sys/kernel/osrelease")
	return fmt.Sprintf("%s, %d processors, Linux %s, %s, commit %s, %s", name, runtime.NumCPU(),
		strings.TrimSpace(string(kernel)), runtime.Version(), strings.TrimSpace(string(commit)), time.Now().UTC().Format(time.DateTime))
}

// processors are the times of all processors since the machine started, or shares of them: busy includes stolen, which
// the host gave to other guests.
type processors struct{ busy, stolen, all float64 }

// processorTimes reads the first line of /proc/stat (proc(5)).
func processorTimes() (p processors) {
	text, _ := os.ReadFile("/proc/stat")
	line, _, _ := strings.Cut(string(text), "\n")
	for i, field := range strings.Fields(line) {
		ticks, err := strconv.ParseFloat(field, 64)
		if err != nil || i > 8 { // the name of the line; the time of guests, which is in that of users
			continue
		}
		p.all += ticks
		switch i {
		case 4, 5: // idle, waiting for a disk
		case 8:
			p.stolen += ticks
			p.busy += ticks
		default:
			p.busy += ticks
		}
	}
	return p
}

// since returns the shares of the time since an earlier look.
func (p processors) since(earlier processors) processors {
	all := p.all - earlier.all
	return processors{busy: (p.busy - earlier.busy) / all, stolen: (p.stolen - earlier.stolen) / all, all: 1}
}

func (b *bencher) add(name, what, reach, then, floors string, measured any) {
	b.rows = append(b.rows, figure{name, what, reach, then, fmt.Sprint(measured), floors})
}

func (b *bencher) print() {
	slices.SortStableFunc(b.rows, func(x, y figure) int {
		nx, _ := strconv.Atoi(x.name[1:])
		ny, _ := strconv.Atoi(y.name[1:])
		return cmp.Compare(nx, ny)
	})
	fmt.Println("| # | figure | floors in the same run | measured: median (least to largest) | reach | then |\n|---|---|---|---|---|---|")
	for _, r := range b.rows {
		fmt.Printf("| %s | %s | %s | %s | %s | %s |\n", r.name, r.what, r.floors, r.measured, r.reach, r.then)
	}
}

// whole returns an error when not every session of an outcome succeeded.
func whole(o outcome, err error) (outcome, error) {
	if err == nil && o.Failed+o.Refused > 0 {
		err = fmt.Errorf("%d of %d sessions failed, %d were refused: %s", o.Failed, o.Sessions+o.Failed+o.Refused, o.Refused, o.Why)
	}
	return o, err
}

// arena is a provider, and a daemon that asks it.
type arena struct {
	provider, daemon *process
}

func (b *bencher) arena(ctx context.Context, provider []string, env ...string) (*arena, error) {
	p, err := b.provider(ctx, provider...)
	if err != nil {
		return nil, err
	}
	d, _, err := b.daemon(ctx, p, 4, env...)
	if err != nil {
		p.stop()
		return nil, err
	}
	return &arena{p, d}, nil
}

func (a *arena) stop() {
	a.daemon.stop()
	a.provider.stop()
}

// reference runs R1, or R0 when raw, with that plan.
func (b *bencher) reference(ctx context.Context, a *arena, raw bool, plan ...string) (outcome, error) {
	args := append([]string{"reference", "-url", a.provider.url}, plan...)
	if raw {
		args = append(args, "-raw")
	}
	return whole(b.perform(ctx, args...))
}

func (b *bencher) load(ctx context.Context, a *arena, plan ...string) (outcome, error) {
	return b.perform(ctx, append([]string{"load", "-url", a.daemon.url}, plan...)...)
}

// sessions measures T1 and half of T4.
func (b *bencher) sessions(ctx context.Context) error {
	a, err := b.arena(ctx, nil)
	if err != nil {
		return err
	}
	defer a.stop()
	plan := []string{"-clients", "32", "-sessions", b.count(1500), "-warm", b.count(300)}
	if _, err := whole(b.load(ctx, a, "-clients", "32", "-sessions", b.count(300))); err != nil { // it warms up
		return err
	}
	var ratio, ours, r1, r0, allocated series
	for range b.rounds {
		one, err := b.reference(ctx, a, false, plan...)
		if err != nil {
			return err
		}
		raw, err := b.reference(ctx, a, true, plan...)
		if err != nil {
			return err
		}
		before, err := metric(a.daemon.url, "go_memstats_mallocs_total")
		if err != nil {
			return err
		}
		cpu := a.daemon.cpu()
		o, err := whole(b.load(ctx, a, plan[:4]...)) // the daemon is warm, and all that it does is counted
		if err != nil {
			return err
		}
		each := (a.daemon.cpu() - cpu) / float64(o.Sessions)
		after, err := metric(a.daemon.url, "go_memstats_mallocs_total")
		if err != nil {
			return err
		}
		ours, r1, r0 = append(ours, each), append(r1, one.CPU), append(r0, raw.CPU)
		ratio, allocated = append(ratio, each/one.CPU), append(allocated, (after-before)/float64(o.Sessions))
	}
	seen, err := a.provider.stats()
	if err != nil {
		return err
	}
	b.add("T1", "CPU per session, whole daemon / R1", "<= 1.2", "<= 0.9",
		fmt.Sprintf("R1 %s us, R0 %s us, daemon %s us; dwell %.2f to %.2f ms (half, 99 %%); requests of %d, %d and %d bytes",
			short(r1.median()), short(r0.median()), short(ours.median()), seen.DwellP50, seen.DwellP99, seen.Bytes[0], seen.Bytes[1], seen.Bytes[2]),
		ratio)
	b.add("T4", "allocations of a session", "<= 2,200", "<= 1,500", "", allocated)
	return nil
}

// open measures T2.
func (b *bencher) open(ctx context.Context) error {
	a, err := b.arena(ctx, nil)
	if err != nil {
		return err
	}
	defer a.stop()
	plan := []string{"-rate", "250", "-during", "8s", "-clients", "32", "-warm", b.count(500)}
	if b.quick {
		plan[3] = "1s"
	}
	var p50, p99, ours, r1, r1p99, r0 series
	for range b.rounds {
		one, err := b.reference(ctx, a, false, plan...)
		if err != nil {
			return err
		}
		raw, err := b.reference(ctx, a, true, plan...)
		if err != nil {
			return err
		}
		o, err := whole(b.load(ctx, a, plan...))
		if err != nil {
			return err
		}
		seen, err := a.provider.stats()
		if err != nil {
			return err
		}
		path := 3 * seen.DwellP50
		ours, r1, r0 = append(ours, o.P50-path), append(r1, one.P50-path), append(r0, raw.P50-path)
		p50, p99 = append(p50, (o.P50-path)/(one.P50-path)), append(p99, (o.P99-path)/(one.P50-path))
		r1p99 = append(r1p99, (one.P99-path)/(one.P50-path))
	}
	b.add("T2", "added p50 over the critical path, 20 ms provider, 250 sessions/s open loop / R1; p99 / R1's p50",
		"<= 1.25; <= 3", "<= 1.05; <= 2",
		fmt.Sprintf("R1 %s ms, R0 %s ms, daemon %s ms; p99 of R1 / its p50 %s",
			short(r1.median()), short(r0.median()), short(ours.median()), r1p99),
		p50.String()+"; "+p99.String())
	return nil
}

// capacity measures T3 and T6.
func (b *bencher) capacity(ctx context.Context) error {
	a, err := b.arena(ctx, nil)
	if err != nil {
		return err
	}
	defer a.stop()
	limited, _, err := b.daemon(ctx, a.provider, 4, "LLM_COUNCIL_MAX_SESSIONS=64")
	if err != nil {
		return err
	}
	defer limited.stop()
	plan := []string{"-clients", "256", "-sessions", b.count(4000), "-warm", b.count(500)}
	during := "6s"
	if b.quick {
		during = "1s"
	}
	var ratio, accepted, r1, ours series
	for range b.rounds {
		one, err := b.reference(ctx, a, false, plan...)
		if err != nil {
			return err
		}
		o, err := whole(b.load(ctx, a, plan...))
		if err != nil {
			return err
		}
		r1, ours = append(r1, float64(one.Sessions)/one.Seconds), append(ours, float64(o.Sessions)/o.Seconds)
		ratio = append(ratio, ours[len(ours)-1]/r1[len(r1)-1])
		small := &arena{a.provider, limited}
		best, err := whole(b.load(ctx, small, "-clients", "64", "-sessions", b.count(2000), "-warm", b.count(300)))
		if err != nil {
			return err
		}
		capacity := float64(best.Sessions) / best.Seconds
		over, err := b.load(ctx, small, "-rate", short(2*capacity), "-during", during, "-clients", "64", "-warm", b.count(300))
		if err != nil {
			return err
		}
		if over.Failed > 0 {
			return errors.New(over.Why)
		}
		accepted = append(accepted, float64(over.Sessions)/over.Seconds/capacity)
	}
	b.add("T3", "sessions/s, 256 clients, 20 ms provider / R1's", ">= 0.8", ">= 1.0",
		fmt.Sprintf("R1 %s/s, daemon %s/s", short(r1.median()), short(ours.median())), ratio)
	b.add("T6", "accepted rate at twice the load / at capacity, MAX_SESSIONS=64", ">= 0.95", ">= 0.98", "", accepted)
	return nil
}

// inFlight measures T5. Each round has a new daemon, because memory that was used once stays.
// Sessions begin within less than a dwell, so that all are in flight together: 14,000
// connections in one moment would be refused by the kernel. Each program has a provider of
// its own too, because idle connections of the one before would take the files and ports.
func (b *bencher) inFlight(ctx context.Context) error {
	plan := []string{"-rate", b.count(3500 / 4), "-during", "4s"}
	provider := []string{"-dwell", b.dwell("5s")}
	alone := func(raw bool) (float64, error) {
		p, err := b.provider(ctx, provider...)
		if err != nil {
			return 0, err
		}
		defer p.stop()
		o, err := b.reference(ctx, &arena{provider: p}, raw, plan...)
		return float64(o.PeakKB-o.IdleKB) / float64(max(o.Sessions, 1)), err
	}
	var ratio, ours, r1, r0, kept series
	for range b.rounds {
		a, err := b.arena(ctx, provider)
		if err != nil {
			return err
		}
		idle := memory(a.daemon.cmd.Process.Pid, "VmRSS")
		o, err := whole(b.load(ctx, a, plan...))
		peak := memory(a.daemon.cmd.Process.Pid, "VmHWM")
		a.stop()
		if err != nil {
			return err
		}
		ours = append(ours, float64(peak-idle)/float64(o.Sessions))
		one, err := alone(false)
		if err != nil {
			return err
		}
		raw, err := alone(true)
		if err != nil {
			return err
		}
		r1, r0 = append(r1, one), append(r0, raw)
		ratio = append(ratio, ours[len(ours)-1]/r1[len(r1)-1])
	}
	for range b.rounds {
		perKept, err := b.kept(ctx)
		if err != nil {
			return err
		}
		kept = append(kept, perKept)
	}
	b.add("T5", "peak memory per session in flight, 5 s provider, 3,500 sessions / R1", "<= 1.9", "<= 1.4",
		fmt.Sprintf("R1 %s KB, R0 %s KB, daemon %s KB; a finished session that can be fetched %s KB of heap",
			short(r1.median()), short(r0.median()), short(ours.median()), short(kept.median())), ratio)
	return nil
}

// kept returns how many KB of the heap a finished session takes that can still be fetched.
func (b *bencher) kept(ctx context.Context) (float64, error) {
	a, err := b.arena(ctx, []string{"-dwell", "1ms"}, "LLM_COUNCIL_SESSIONS_DIR=off")
	if err != nil {
		return 0, err
	}
	defer a.stop()
	if _, err := whole(b.load(ctx, a, "-mode", "kept", "-clients", "16", "-sessions", b.count(50))); err != nil {
		return 0, err
	}
	before, err := b.heap(a.daemon)
	if err != nil {
		return 0, err
	}
	o, err := whole(b.load(ctx, a, "-mode", "kept", "-clients", "16", "-sessions", b.count(800)))
	if err != nil {
		return 0, err
	}
	after, err := b.heap(a.daemon)
	return (after - before) / 1024 / float64(o.Sessions), err
}

// heap returns how many bytes of a daemon's heap the last collection found in use, after one
// that the runtime makes by itself every two minutes, or the load of small requests brings.
func (b *bencher) heap(d *process) (float64, error) {
	begun, err := metric(d.url, "go_gc_duration_seconds_count")
	if err != nil {
		return 0, err
	}
	for {
		collections, err := metric(d.url, "go_gc_duration_seconds_count") // it allocates
		if err != nil {
			return 0, err
		}
		if collections >= begun+2 {
			return metric(d.url, "go_memstats_heap_alloc_bytes")
		}
	}
}

// connections measures T7.
func (b *bencher) connections(ctx context.Context) error {
	plan := []string{"-clients", "8", "-sessions", b.count(300)}
	names := []string{"plain", "streamed", "R1 plain", "R1 streamed"}
	opened := map[string]series{}
	for range b.rounds {
		a, err := b.arena(ctx, []string{"-late", "3ms", "-dwell", "2ms"})
		if err != nil {
			return err
		}
		for i, run := range []func() (outcome, error){
			func() (outcome, error) { return whole(b.load(ctx, a, plan...)) },
			func() (outcome, error) { return whole(b.load(ctx, a, append(plan, "-mode", "stream")...)) },
			func() (outcome, error) { return b.reference(ctx, a, false, plan...) },
			func() (outcome, error) { return b.reference(ctx, a, false, append(plan, "-stream")...) },
		} {
			var each float64
			if each, err = opening(a, run, i >= 2); err != nil {
				break
			}
			opened[names[i]] = append(opened[names[i]], each)
		}
		a.stop()
		if err != nil {
			return err
		}
	}
	b.add("T7", "new connections per 1,000 calls with late terminators, of plain and of streamed sessions", "0", "0",
		fmt.Sprintf("R1 %s; %s", short(opened[names[2]].median()), short(opened[names[3]].median())),
		opened[names[0]].String()+"; "+opened[names[1]].String())
	return nil
}

// opening returns how many connections a run opens per 1,000 calls, but for those that it
// needs: a process of its own those of its 8 clients and 4 members, the daemon those that it
// opens in a run before.
func opening(a *arena, run func() (outcome, error), own bool) (float64, error) {
	if !own {
		if _, err := run(); err != nil {
			return 0, err
		}
	}
	before, err := a.provider.stats()
	if err != nil {
		return 0, err
	}
	if _, err := run(); err != nil {
		return 0, err
	}
	after, err := a.provider.stats()
	opened := after.Connections - before.Connections
	if own {
		opened = max(0, opened-8*4)
	}
	return 1000 * float64(opened) / float64(after.Calls-before.Calls), err
}

// chunks measures T8: how much more a streamed session takes whose texts come in many chunks
// than one whose texts come in few. The chunks of a reply come together, so that what is
// measured is not the kernel's work for each packet.
func (b *bencher) chunks(ctx context.Context) error {
	const few, many = 40, 1000
	plan := []string{"-clients", "8", "-sessions", b.count(300)}
	arenas := map[int]*arena{}
	for _, n := range []int{few, many} {
		a, err := b.arena(ctx, []string{"-burst", "-answer", "8000", "-review", "8000", "-chunks", strconv.Itoa(n)})
		if err != nil {
			return err
		}
		defer a.stop()
		arenas[n] = a
		if _, err := whole(b.load(ctx, a, append(plan, "-mode", "stream")...)); err != nil { // it warms up
			return err
		}
	}
	var ratio, ours, r1 series
	for range b.rounds {
		var mine, theirs [2]float64
		for i, n := range []int{few, many} {
			a := arenas[n]
			cpu := a.daemon.cpu()
			o, err := whole(b.load(ctx, a, append(plan, "-mode", "stream")...))
			if err != nil {
				return err
			}
			mine[i] = (a.daemon.cpu() - cpu) / float64(o.Sessions)
			one, err := b.reference(ctx, a, false, append(plan, "-stream", "-warm", b.count(50))...)
			if err != nil {
				return err
			}
			theirs[i] = one.CPU
		}
		const each = 9 * (many - few)
		ours, r1 = append(ours, (mine[1]-mine[0])/each), append(r1, (theirs[1]-theirs[0])/each)
		ratio = append(ratio, ours[len(ours)-1]/r1[len(r1)-1])
	}
	b.add("T8", "CPU per relayed stream chunk, provider to watcher / go-openai's Recv, both over HTTP", "<= 0.5", "<= 0.25",
		fmt.Sprintf("Recv %s us, daemon %s us", short(r1.median()), short(ours.median())), ratio)
	return nil
}

// streamed measures T16.
func (b *bencher) streamed(ctx context.Context) error {
	a, err := b.arena(ctx, []string{"-dwell", b.dwell("1s"), "-chunks", "50"})
	if err != nil {
		return err
	}
	defer a.stop()
	cost := map[string]series{}
	for round := range b.rounds + 1 {
		for _, mode := range []string{"plain", "stream", "kept"} {
			cpu := a.daemon.cpu()
			o, err := whole(b.load(ctx, a, "-mode", mode, "-clients", "128", "-sessions", b.count(640)))
			if err != nil {
				return err
			}
			if round > 0 { // the first warms up
				cost[mode] = append(cost[mode], (a.daemon.cpu()-cpu)/float64(o.Sessions))
			}
		}
		for _, mode := range []string{"-stream=false", "-stream"} {
			o, err := b.reference(ctx, a, false, mode, "-clients", "128", "-sessions", b.count(640))
			if err != nil {
				return err
			}
			if round > 0 {
				cost[mode] = append(cost[mode], o.CPU)
			}
		}
	}
	ratio := func(mode, to string) (s series) {
		for i, cpu := range cost[mode] {
			s = append(s, cpu/cost[to][i])
		}
		return s
	}
	b.add("T16", "CPU of a streamed session, every text in 50 chunks 20 ms apart, and of a kept one, streamed too / a plain one",
		"<= 1.25; <= 1.6", "<= 1.15; <= 1.4",
		fmt.Sprintf("plain %s us; R1 streamed / R1 plain %s; daemon streamed / R1 streamed %s", short(cost["plain"].median()),
			ratio("-stream", "-stream=false"), ratio("stream", "-stream")),
		ratio("stream", "plain").String()+"; "+ratio("kept", "plain").String())
	return nil
}

// simulated returns a file of so many simulated sessions of 12 records.
func (b *bencher) simulated(ctx context.Context, sessions int) (string, error) {
	name := filepath.Join(b.dir, fmt.Sprintf("simulated%d.jsonl", sessions))
	if _, err := os.Stat(name); err == nil {
		return name, nil
	}
	_, _, err := spent(ctx, b.councild, "simulate", "--sessions", strconv.Itoa(sessions), "--out", name)
	return name, err
}

// report measures T10.
func (b *bencher) report(ctx context.Context) error {
	file, err := b.simulated(ctx, 1000)
	if err != nil {
		return err
	}
	var ratio, start, whole series
	for range max(9, 3*b.rounds) {
		empty, _, err := spent(ctx, b.councild, "version")
		if err != nil {
			return err
		}
		full, _, err := spent(ctx, b.councild, "bias-report", "--input", file, "--sessions", "0", "--days", "0")
		if err != nil {
			return err
		}
		ms := func(d time.Duration) float64 { return d.Seconds() * 1000 }
		start, whole, ratio = append(start, ms(empty)), append(whole, ms(full)), append(ratio, full.Seconds()/empty.Seconds())
	}
	b.add("T10", "whole report, all models, 1,000 sessions x 12, cold process / start of the process", "<= 4.2", "<= 3",
		fmt.Sprintf("start %s ms, report %s ms", short(start.median()), short(whole.median())), ratio)
	return nil
}

// page measures T14: the files that index.html names, packed, and what a test of the page
// says about the longest task.
func (b *bencher) page(ctx context.Context) error {
	a, err := b.arena(ctx, nil)
	if err != nil {
		return err
	}
	defer a.stop()
	total := 0
	fetch := func(path string) (string, error) {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, a.daemon.url+path, http.NoBody)
		if err != nil {
			return "", err
		}
		req.Header.Set("Accept-Encoding", "gzip")
		resp, err := http.DefaultTransport.RoundTrip(req)
		if err != nil {
			return "", err
		}
		defer resp.Body.Close()
		body, err := io.ReadAll(resp.Body)
		if err != nil || resp.StatusCode != http.StatusOK {
			return "", errors.Join(err, errors.New(resp.Status+" of "+path))
		}
		total += len(body)
		if resp.Header.Get("Content-Encoding") != "gzip" {
			return string(body), nil
		}
		r, err := gzip.NewReader(strings.NewReader(string(body)))
		if err != nil {
			return "", err
		}
		text, err := io.ReadAll(r)
		return string(text), err
	}
	index, err := fetch("/")
	if err != nil {
		return err
	}
	seen := map[string]bool{}
	queue := regexp.MustCompile(`(?:src|href)="(/?assets/[^"]+)"`).FindAllStringSubmatch(index, -1)
	for len(queue) > 0 {
		path := "/" + strings.TrimPrefix(queue[0][1], "/")
		queue = queue[1:]
		if seen[path] {
			continue
		}
		seen[path] = true
		text, err := fetch(path)
		if err != nil {
			return err
		}
		if strings.HasSuffix(path, ".js") {
			for _, m := range regexp.MustCompile(`(?m)^import [^;]*?"\./([^"]+)"`).FindAllStringSubmatch(text, -1) {
				queue = append(queue, []string{"", "/assets/" + m[1]})
			}
		}
	}
	b.add("T14", fmt.Sprintf("the page's first paint, bytes of the bodies of %d files", len(seen)+1), "<= 60 KB", "", "", strconv.Itoa(total))
	if b.quick {
		return nil
	}
	var longest series
	for range b.rounds {
		cmd := started(ctx, "go", "test", "-count=1", "-run", "^TestLongestTask$", "-v", ".")
		cmd.Dir = filepath.Join(b.root, "e2e")
		out, err := cmd.CombinedOutput()
		m := regexp.MustCompile(`longest task (\d+) ms at first, (\d+) ms live, (\d+) ms after`).FindSubmatch(out)
		if err != nil || m == nil {
			return fmt.Errorf("the page in a browser: %w\n%s", cmp.Or(err, errors.New("no longest task is told")), out)
		}
		ms, err := strconv.ParseFloat(string(m[2]), 64)
		if err != nil {
			return err
		}
		longest = append(longest, ms)
	}
	b.add("T14", "longest task while the events of a session are drawn, Chromium, ms (0: none over 50)", "<= 50", "", "", longest)
	return nil
}

// start measures T15.
func (b *bencher) start(ctx context.Context) error {
	p, err := b.provider(ctx)
	if err != nil {
		return err
	}
	defer p.stop()
	var ready, idle series
	for range max(5, b.rounds) {
		d, took, err := b.daemon(ctx, p, 4)
		if err != nil {
			return err
		}
		time.Sleep(time.Second)
		ready, idle = append(ready, took.Seconds()*1000), append(idle, float64(memory(d.cmd.Process.Pid, "VmRSS"))/1024)
		d.stop()
	}
	info, err := os.Stat(b.councild)
	if err != nil {
		return err
	}
	b.add("T15", "start of `serve` to ready, ms; idle memory, MiB; binary, MB", "10; 20; 23, and what scale.md allows", "", "",
		fmt.Sprintf("%s; %s; %.1f", ready, idle, float64(info.Size())/1e6))
	return nil
}

// benchmarks measures what Go benchmarks of councild measure.
func (b *bencher) benchmarks(ctx context.Context) error {
	values := map[string]series{}
	benchtime := "1s"
	if b.quick {
		benchtime = "10ms"
	}
	for range b.rounds {
		cmd := started(ctx, "go", "test", "-run", "^$", "-bench",
			"^(BenchmarkComplete|BenchmarkStreamChunk|BenchmarkAppend|BenchmarkAudit|BenchmarkRead|BenchmarkReportWindow)$",
			"-benchmem", "-benchtime", benchtime, "./internal/llm", "./internal/store", "./internal/bias", "./internal/daemon")
		cmd.Dir = b.root
		out, err := cmd.CombinedOutput()
		if err != nil {
			return fmt.Errorf("%w\n%s", err, out)
		}
		for line := range strings.Lines(string(out)) {
			fields := strings.Fields(line)
			if len(fields) < 3 || !strings.HasPrefix(fields[0], "Benchmark") {
				continue
			}
			name := regexp.MustCompile(`-\d+$`).ReplaceAllString(fields[0], "")
			for i := 2; i+1 < len(fields); i += 2 {
				if v, err := strconv.ParseFloat(fields[i], 64); err == nil {
					values[name+" "+fields[i+1]] = append(values[name+" "+fields[i+1]], v)
				}
			}
		}
	}
	over := func(a, c string) (ratios series, err error) {
		if len(values[a]) == 0 || len(values[a]) != len(values[c]) {
			return nil, fmt.Errorf("no benchmark gave %q and %q", a, c)
		}
		for i, v := range values[a] {
			ratios = append(ratios, v/values[c][i])
		}
		return ratios, nil
	}
	allocations, err := over("BenchmarkComplete/answer/councild allocs/op", "BenchmarkComplete/answer/go-openai allocs/op")
	if err != nil {
		return err
	}
	b.add("T4", "allocations of `llm.Complete` / go-openai alone", "<= 1.0", "<= 0.6",
		"go-openai "+short(values["BenchmarkComplete/answer/go-openai allocs/op"].median()), allocations)
	chunk, err := over("BenchmarkStreamChunk/plain ns/chunk", "BenchmarkStreamChunk/plain recv-ns/chunk")
	if err != nil {
		return err
	}
	b.add("T8", "of that the client alone, time in one process (`BenchmarkStreamChunk`)", "", "",
		fmt.Sprintf("Recv %s us", short(values["BenchmarkStreamChunk/plain recv-ns/chunk"].median()/1000)), chunk)
	durable, err := over("BenchmarkAppend/writers=512/store sessions/s", "BenchmarkAppend/writers=512/fsync_each sessions/s")
	if err != nil {
		return err
	}
	b.add("T11", "durable sessions/s at 512 writers / one fsync each", ">= 20", ">= 60",
		fmt.Sprintf("one fsync each %s/s", short(values["BenchmarkAppend/writers=512/fsync_each sessions/s"].median())), durable)
	all, err := over("BenchmarkRead/read cpu-ns/record", "BenchmarkRead/encoding/json cpu-ns/record")
	if err != nil {
		return err
	}
	newest, err := over("BenchmarkReportWindow/old=1000008 reading-cpu-ms", "BenchmarkRead/encoding/json cpu-ns/record")
	if err != nil {
		return err
	}
	for i := range newest { // ms / (ns * a million records)
		newest[i] /= 1_001_208 * 1e-6
	}
	b.add("T9",
		"reading of 1,000,000 records: window of the newest 100 sessions of a store as a daemon leaves it; "+
			"all, in one file, without a window; CPU / R2",
		"<= 0.01; <= 0.15", "<= 0.002; <= 0.06",
		fmt.Sprintf("R2 %s us a record; R3, which counts lines, %s of it",
			short(values["BenchmarkRead/encoding/json cpu-ns/record"].median()/1000),
			short(values["BenchmarkRead/bytes cpu-ns/record"].median()/values["BenchmarkRead/encoding/json cpu-ns/record"].median())),
		newest.String()+"; "+all.String())
	segment, audit := values["BenchmarkRead/read_closed bytes/session"], values["BenchmarkAudit ns/op"]
	if len(segment) == 0 || len(audit) == 0 {
		return errors.New("no BenchmarkRead, or no BenchmarkAudit")
	}
	b.add("T12", "bytes per session in a closed segment", "<= 224", "<= 200", "", short(segment.median()))
	b.add("T13", "audit per session, resampling included, ms", "0.03: kept", "", "", short(audit.median()/1e6))
	return nil
}
