package main

import (
	"cmp"
	"compress/gzip"
	"context"
	"encoding/json"
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

// bencher measures figures.
type bencher struct {
	*workplace
	root   string
	rounds int
	quick  bool
	result
}

// count returns n, or a smaller number in a quick run.
func (b *bencher) count(n int) int {
	if b.quick {
		n = max(8, n/50)
	}
	return n
}

// dwell returns the time of a call, or a shorter time in a quick run.
func (b *bencher) dwell(span string) string {
	if b.quick {
		return "200ms"
	}
	return span
}

// during is how long an open loop begins sessions. In a quick run, that is a second.
func (b *bencher) during(span time.Duration) time.Duration {
	if b.quick {
		span = time.Second
	}
	return span
}

// parts is the number of parts of a run. Each figure is measured in each part, by programs that are started anew. The
// rounds of a figure are then spread over the whole run, because a shared machine can favour one of two programs for
// some minutes.
const parts = 3

// each is how many rounds a part has.
func (b *bencher) each() int { return (b.rounds + parts - 1) / parts }

// often is how many rounds a part has for figures whose rounds are short. All parts together have twice b.rounds.
func (b *bencher) often() int { return (2*b.rounds + parts - 1) / parts }

// measurement measures some figures. The function part measures one part of their rounds. After all parts, the function
// figures adds the figures of all rounds.
type measurement struct {
	part    func() error
	figures func()
}

// turns is one round of measurements. It runs each function once. One round runs them in this order and the next round
// in reverse order, so that a machine that becomes faster or slower favours no function.
func turns(round int, run ...func() error) error {
	for i := range run {
		if round%2 == 1 {
			i = len(run) - 1 - i
		}
		if err := run[i](); err != nil {
			return err
		}
	}
	return nil
}

func compare(ctx context.Context, args []string) error {
	flags := flag.NewFlagSet("compare", flag.ContinueOnError)
	root := flags.String("root", "..", "repository of councild")
	rounds := flags.Int("rounds", 9, "rounds of most figures, in three parts of the run; T3, T6, "+
		"T8 and T16 have twice as many, T10 three times, T1 and T2 six times")
	only := flags.String("only", "", "comma list of figures, such as T1,T5; empty: all")
	quick := flags.Bool("quick", false, "run a few sessions of each figure, to see that the program works")
	out := flags.String("out", "", "file for the result. The command against compares two such files.")
	env := flags.String("env", "", "comma list of environment variables for the daemon, besides its defaults, "+
		"such as GOMEMLIMIT=1GiB")
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
	groups := b.groups(ctx, *only)
	if len(groups) == 0 {
		return fmt.Errorf("-only %q names no figure", *only)
	}
	for part := range parts {
		measureAll(ctx, groups, part)
	}
	if ctx.Err() != nil {
		return errors.New("interrupted: no figure has all its rounds")
	}
	var invalid error
	for _, g := range groups {
		if g.err == nil {
			g.figures()
			continue
		}
		invalid = errors.Join(invalid, fmt.Errorf("%s: %w", g.names, g.err))
		b.add(figure{Name: strings.Fields(g.names)[0], What: g.names, Problem: oneLine(g.err)})
	}
	b.Machine = fmt.Sprintf("%s; other programs had %.1f %% of the processors just before, "+
		"other guests of the host %.1f %% during the run", begun, 100*others, 100*processorTimes().since(start).stolen)
	b.print(os.Stdout)
	fmt.Printf("\n%s\n\nIn brackets: the interval of the estimate, with 95 %% or more. "+
		"For fewer than six rounds it is their range.\n",
		b.Machine)
	if others > 0.25 {
		fmt.Printf("\n**Other programs had the processors before this run: figures of time (T2, T3, T6, T10, T11, T15) mean nothing.**\n")
	}
	if *out == "" {
		return invalid
	}
	text, err := json.MarshalIndent(b.result, "", " ")
	if err == nil {
		err = os.WriteFile(*out, append(text, '\n'), 0o600)
	}
	return errors.Join(invalid, err)
}

// group is a measurement with the names of its figures. An error ends only the group in which it happens.
type group struct {
	names string
	measurement
	err error
}

// groups returns the measurements of the wanted figures. The argument only is a comma list of their names, or "" for
// all figures.
func (b *bencher) groups(ctx context.Context, only string) []*group {
	all := []*group{
		{names: "T14", measurement: b.page(ctx)}, // first, because its browser may be missing
		{names: "T1 T2 T4", measurement: b.open(ctx)},
		{names: "T3 T6 T1", measurement: b.capacity(ctx)},
		{names: "T5", measurement: b.inFlight(ctx)},
		{names: "T7", measurement: b.connections(ctx)},
		{names: "T8", measurement: b.chunks(ctx)},
		{names: "T16", measurement: b.streamed(ctx)},
		{names: "T10", measurement: b.report(ctx)},
		{names: "T15", measurement: b.start(ctx)},
		{names: "T4 T8 T9 T11 T12 T13", measurement: b.benchmarks(ctx)},
	}
	wanted := strings.Split(only, ",")
	return slices.DeleteFunc(all, func(g *group) bool {
		if only == "" {
			// Benchmarks take a minute, even in a quick run.
			return b.quick && strings.HasSuffix(g.names, "T13")
		}
		return !slices.ContainsFunc(strings.Fields(g.names), func(name string) bool { return slices.Contains(wanted, name) })
	})
}

// measureAll measures one part of the rounds of each group.
func measureAll(ctx context.Context, groups []*group, part int) {
	for _, g := range groups {
		if g.err != nil || ctx.Err() != nil {
			continue
		}
		fmt.Fprintf(os.Stderr, "%s part %d of %d: %s\n", time.Now().Format(time.TimeOnly), part+1, parts, g.names)
		if g.err = g.part(); g.err != nil && ctx.Err() == nil {
			fmt.Fprintf(os.Stderr, "%s: %s\n", g.names, oneLine(g.err))
		}
	}
}

func machine(root string) string {
	cpu, _ := os.ReadFile("/proc/cpuinfo") // proc(5); the first processor
	field := func(name string) string {
		found := regexp.MustCompile(`(?m)^` + name + `\s*: (.*)$`).FindSubmatch(cpu)
		if found == nil {
			return "unknown"
		}
		return string(found[1])
	}
	// A guest sees one model name for many generations of processors. The family and the model number tell them apart.
	name := fmt.Sprintf("%s (family %s, model %s)", field("model name"), field("cpu family"), field("model"))
	git := exec.Command("git", "describe", "--always", "--dirty")
	git.Dir = root
	commit, _ := git.Output()
	kernel, _ := os.ReadFile("/proc/sys/kernel/osrelease")
	return fmt.Sprintf("%s, %d processors, Linux %s, %s, commit %s, %s", name, runtime.NumCPU(),
		strings.TrimSpace(string(kernel)), runtime.Version(), strings.TrimSpace(string(commit)), time.Now().UTC().Format(time.DateTime))
}

// processors has the times of all processors since the machine started, or shares of these times. The field busy
// includes stolen, the time that the host gave to other guests.
type processors struct{ busy, stolen, all float64 }

// processorTimes reads the first line of /proc/stat (proc(5)).
func processorTimes() (p processors) {
	text, _ := os.ReadFile("/proc/stat")
	line, _, _ := strings.Cut(string(text), "\n")
	for i, field := range strings.Fields(line) {
		ticks, err := strconv.ParseFloat(field, 64)
		if err != nil || i > 8 { // Skip the name of the line, and the time of guests, which the time of users includes.
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

// since is called with earlier times. It returns the shares of the time that has passed since these were read.
func (p processors) since(earlier processors) processors {
	all := p.all - earlier.all
	return processors{busy: (p.busy - earlier.busy) / all, stolen: (p.stolen - earlier.stolen) / all, all: 1}
}

// whole is the check that all sessions of an outcome succeeded. It returns an error if one did not.
func whole(o outcome, err error) (outcome, error) {
	if err == nil && o.Failed+o.Refused > 0 {
		err = fmt.Errorf("%d of %d sessions failed, %d were refused: %s",
			o.Failed, o.Sessions+o.Failed+o.Refused, o.Refused, o.Why)
	}
	return o, err
}

// arena has a provider, a daemon that calls the provider, and the programs that send sessions to one of the two.
type arena struct {
	*workplace
	provider, daemon *process
	workers          map[string]*worker // by their arguments
}

// arena starts a provider. If members is above 0, it also starts a daemon with this number of members.
func (w *workplace) arena(ctx context.Context, members int, provider []string, env ...string) (*arena, error) {
	p, err := w.provider(ctx, provider...)
	if err != nil {
		return nil, err
	}
	a := &arena{workplace: w, provider: p, workers: map[string]*worker{}}
	if members > 0 {
		if a.daemon, _, err = w.daemon(ctx, p, members, env...); err != nil {
			a.stop()
			return nil, err
		}
	}
	return a, nil
}

func (a *arena) stop() {
	for _, k := range a.workers {
		k.stop()
	}
	if a.daemon != nil {
		a.daemon.stop()
	}
	a.provider.stop()
}

// run has the process with these arguments carry out a plan. It starts the process for the first plan.
func (a *arena) run(ctx context.Context, p plan, args ...string) (o outcome, err error) {
	name := strings.Join(args, " ")
	if a.workers[name] == nil {
		if a.workers[name], err = a.worker(ctx, args...); err != nil {
			return o, err
		}
	}
	return a.workers[name].run(p)
}

// reference runs R1, or R0 with -raw.
func (a *arena) reference(ctx context.Context, p plan, args ...string) (outcome, error) {
	return whole(a.run(ctx, p, append([]string{"reference", "-url", a.provider.url}, args...)...))
}

// load sends sessions to the daemon. A refused session is not an error.
func (a *arena) load(ctx context.Context, p plan, args ...string) (outcome, error) {
	o, err := a.run(ctx, p, append([]string{"load", "-url", a.daemon.url}, args...)...)
	if err == nil && o.Failed > 0 {
		_, err = whole(o, nil)
	}
	return o, err
}

// asked is called with a plan. It sends sessions to the daemon, and returns how much processor time of the daemon each
// session takes, in us.
func (a *arena) asked(ctx context.Context, p plan, args ...string) (o outcome, cpu float64, err error) {
	before := a.daemon.cpu()
	o, err = whole(a.load(ctx, p, args...))
	return o, (a.daemon.cpu() - before) / float64(max(o.Sessions, 1)), err
}

// warm is called before a measurement. It has R1, R0 and the daemon run sessions that are not measured.
func (a *arena) warm(ctx context.Context, p plan) error {
	_, first := a.reference(ctx, p)
	_, second := a.reference(ctx, p, "-raw")
	_, third := whole(a.load(ctx, p))
	return errors.Join(first, second, third)
}

// loadShare is the rate of sessions in T1 and T2, as a share of the rate that R1 reaches with 256 clients on this
// machine. A slow machine is then as busy as a fast one. When the goal of T2 was set, the rate was 250/s, and R1
// reached 1,054/s.
const loadShare = 0.24

// open measures T1, T2 and half of T4 under a load below the capacity.
func (b *bencher) open(ctx context.Context) measurement {
	// Rounds are short, so that R1 and the daemon meet the machine in the same state. On one machine, other guests of the
	// host took a tenth of the time, for some seconds at a time. There, 54 rounds of 4 s had half the interval of 18
	// rounds of 12 s.
	during := b.during(4 * time.Second)
	// In side, cpu is in us a session. p50 and p99 are quantiles of the time beyond three dwells, in ms.
	type side struct{ cpu, p50, p99 series }
	var ours, r1, r0 side
	var rates, allocated series
	var seen stats
	return measurement{part: func() error {
		a, err := b.arena(ctx, 4, nil)
		if err != nil {
			return err
		}
		defer a.stop()
		if err := a.warm(ctx, plan{Clients: 64, Sessions: b.count(600)}); err != nil {
			return err
		}
		took := func(s *side, o outcome, cpu float64) (err error) {
			seen, err = a.provider.stats()
			s.cpu, s.p50, s.p99 = append(s.cpu, cpu), append(s.p50, o.P50-3*seen.DwellP50), append(s.p99, o.P99-3*seen.DwellP50)
			return err
		}
		best, err := a.reference(ctx, plan{Clients: 256, Sessions: b.count(3000)})
		if err != nil {
			return err
		}
		rate := loadShare * float64(best.Sessions) / best.Seconds
		rates = append(rates, rate)
		for round := range 3 * b.often() {
			// In one round, all programs have the same arrivals. Each round has other arrivals.
			p := plan{Rate: rate, During: during, Seed: len(r1.cpu)}
			if _, err := a.provider.stats(); err != nil { // The provider then forgets the dwells so far.
				return err
			}
			if err := turns(round, func() error {
				o, err := a.reference(ctx, p)
				return errors.Join(err, took(&r1, o, o.CPU))
			}, func() error {
				// No figure is a ratio to R0, so its rounds are short.
				o, err := a.reference(ctx, plan{Rate: rate, During: during / 3, Seed: p.Seed}, "-raw")
				return errors.Join(err, took(&r0, o, o.CPU))
			}, func() error {
				before, err := metric(a.daemon.url, "go_memstats_mallocs_total")
				if err != nil {
					return err
				}
				o, cpu, err := a.asked(ctx, p)
				if err := errors.Join(err, took(&ours, o, cpu)); err != nil {
					return err
				}
				after, err := metric(a.daemon.url, "go_memstats_mallocs_total")
				allocated = append(allocated, (after-before)/float64(o.Sessions))
				return err
			}); err != nil {
				return err
			}
		}
		return nil
	}, figures: func() {
		load := fmt.Sprintf("arrivals at random, %.2f of what R1 reaches", loadShare)
		b.add(figure{
			Name:   "T1",
			What:   "CPU of a session, whole daemon / R1, " + load,
			Reach:  "<= 1.2",
			Then:   "<= 0.9",
			Values: ours.cpu.over(r1.cpu),
			Beside: fmt.Sprintf("R1 %s us, R0 %s us, daemon %s us; dwell %.2f to %.2f ms (half, 99 %%); "+
				"requests of %d, %d and %d bytes",
				short(r1.cpu.pseudomedian()), short(r0.cpu.pseudomedian()), short(ours.cpu.pseudomedian()),
				seen.DwellP50, seen.DwellP99, seen.Bytes[0], seen.Bytes[1], seen.Bytes[2]),
		})
		b.add(figure{
			Name:   "T2",
			What:   "added p50 over the critical path, 20 ms provider, " + load + " / R1",
			Reach:  "<= 1.25",
			Then:   "<= 1.05",
			Values: ours.p50.over(r1.p50),
			Beside: fmt.Sprintf("%s sessions/s; R1 %s ms, R0 %s ms, daemon %s ms",
				short(rates.pseudomedian()), short(r1.p50.pseudomedian()), short(r0.p50.pseudomedian()), short(ours.p50.pseudomedian())),
		})
		b.add(figure{
			Name:   "T2",
			What:   "added p99 / R1's added p50, " + load,
			Reach:  "<= 3",
			Then:   "<= 2",
			Values: ours.p99.over(r1.p50),
			Local:  true,
			Beside: "R1's p99 / its p50 " + r1.p99.over(r1.p50).String(),
		})
		b.add(figure{Name: "T2", What: "added p99 / R1's added p99, " + load, Values: ours.p99.over(r1.p99)})
		b.add(figure{
			Name:   "T4",
			What:   "allocations of a session",
			Reach:  "<= 2,200",
			Then:   "<= 1,500",
			Values: allocated,
		})
	}}
}

// capacity measures T3 and T6, and T1 while all processors are busy.
func (b *bencher) capacity(ctx context.Context) measurement {
	rate := func(o outcome) float64 { return float64(o.Sessions) / o.Seconds }
	var accepted, worth, r1, ours, r1CPU, ourCPU series
	return measurement{part: func() error {
		a, err := b.arena(ctx, 4, nil)
		if err != nil {
			return err
		}
		defer a.stop()
		small, err := b.arena(ctx, 4, nil, "LLM_COUNCIL_MAX_SESSIONS=64")
		if err != nil {
			return err
		}
		defer small.stop()
		full := plan{Clients: 64, Sessions: b.count(1000)}
		_, err = whole(small.load(ctx, full))
		if err := errors.Join(err, a.warm(ctx, plan{Clients: 256, Sessions: b.count(600)})); err != nil {
			return err
		}
		p := plan{Clients: 256, Sessions: b.count(1500)}
		for round := range b.often() {
			if err := turns(round, func() error {
				o, err := a.reference(ctx, p)
				r1, r1CPU = append(r1, rate(o)), append(r1CPU, o.CPU)
				return err
			}, func() error {
				o, cpu, err := a.asked(ctx, p)
				ours, ourCPU = append(ours, rate(o)), append(ourCPU, cpu)
				return err
			}); err != nil {
				return err
			}
			// The run at twice the capacity lies between two measurements of the capacity.
			first, cpu1, err := small.asked(ctx, full)
			if err != nil {
				return err
			}
			before := small.daemon.cpu()
			over, err := small.load(ctx, plan{Rate: 2 * rate(first), During: b.during(3 * time.Second)})
			if err != nil {
				return err
			}
			each := (small.daemon.cpu() - before) / float64(over.Sessions)
			second, cpu2, err := small.asked(ctx, full)
			if err != nil {
				return err
			}
			accepted = append(accepted, 2*rate(over)/(rate(first)+rate(second)))
			worth = append(worth, (cpu1+cpu2)/2/each)
		}
		return nil
	}, figures: func() {
		b.add(figure{
			Name: "T1", What: "the same with 256 clients, in the rounds of T3", Values: ourCPU.over(r1CPU),
			Beside: fmt.Sprintf("R1 %s us, daemon %s us", short(r1CPU.pseudomedian()), short(ourCPU.pseudomedian())),
		})
		b.add(figure{
			Name:   "T3",
			What:   "sessions/s, 256 clients, 20 ms provider / R1's",
			Reach:  ">= 0.8",
			Then:   ">= 1.0",
			Values: ours.over(r1),
			Beside: fmt.Sprintf("R1 %s/s, daemon %s/s", short(r1.pseudomedian()), short(ours.pseudomedian())),
		})
		b.add(figure{
			Name:   "T6",
			What:   "accepted rate at twice the load / at capacity, MAX_SESSIONS=64",
			Reach:  ">= 0.95",
			Then:   ">= 0.98",
			Values: accepted,
			Local:  true,
			Beside: "the load generator, which has the same processors, sends what is refused, too",
		})
		b.add(figure{
			Name:   "T6",
			What:   "the same, sessions accepted for each second of the daemon's processor time",
			Values: worth,
		})
	}}
}

// inFlight measures T5. Each round has a new daemon, because a process keeps memory that it once used. All sessions
// begin within less than a dwell, so that they are in flight together. They do not begin at one moment, because the
// kernel would refuse 14,000 connections. Each program also has a provider of its own, because idle connections of the
// program before would take the files and ports.
func (b *bencher) inFlight(ctx context.Context) measurement {
	p := plan{Rate: float64(b.count(3500 / 4)), During: 4 * time.Second}
	provider := []string{"-dwell", b.dwell("5s")}
	alone := func(args ...string) (float64, error) {
		a, err := b.arena(ctx, 0, provider)
		if err != nil {
			return 0, err
		}
		defer a.stop()
		o, err := a.reference(ctx, p, args...)
		return float64(o.PeakKB-o.IdleKB) / float64(max(o.Sessions, 1)), err
	}
	var ours, r1, r0, kept series
	return measurement{part: func() error {
		a, err := b.arena(ctx, 4, provider)
		if err != nil {
			return err
		}
		idle := memory(a.daemon.cmd.Process.Pid, "VmRSS")
		o, err := whole(a.load(ctx, p))
		peak := memory(a.daemon.cmd.Process.Pid, "VmHWM")
		a.stop()
		if err != nil {
			return err
		}
		ours = append(ours, float64(peak-idle)/float64(o.Sessions))
		one, err := alone()
		if err != nil {
			return err
		}
		raw, err := alone("-raw")
		if err != nil {
			return err
		}
		perKept, err := b.kept(ctx)
		r1, r0, kept = append(r1, one), append(r0, raw), append(kept, perKept)
		return err
	}, figures: func() {
		b.add(figure{
			Name:   "T5",
			What:   "peak memory per session in flight, 5 s provider, 3,500 sessions / R1",
			Reach:  "<= 1.9",
			Then:   "<= 1.4",
			Values: ours.over(r1),
			Beside: fmt.Sprintf("R1 %s KB, R0 %s KB, daemon %s KB; "+
				"a finished session that can be fetched %s KB of heap",
				short(r1.pseudomedian()), short(r0.pseudomedian()), short(ours.pseudomedian()), short(kept.pseudomedian())),
		})
	}}
}

// kept is how many KB of the heap a finished session takes while it can still be fetched.
func (b *bencher) kept(ctx context.Context) (float64, error) {
	a, err := b.arena(ctx, 4, []string{"-dwell", "1ms"}, "LLM_COUNCIL_DATA_DIR=off")
	if err != nil {
		return 0, err
	}
	defer a.stop()
	if _, err := whole(a.load(ctx, plan{Clients: 16, Sessions: b.count(50)}, "-mode", "kept")); err != nil {
		return 0, err
	}
	before, err := b.heap(a.daemon)
	if err != nil {
		return 0, err
	}
	o, err := whole(a.load(ctx, plan{Clients: 16, Sessions: b.count(800)}, "-mode", "kept"))
	if err != nil {
		return 0, err
	}
	after, err := b.heap(a.daemon)
	return (after - before) / 1024 / float64(o.Sessions), err
}

// heap returns how many bytes of a daemon's heap a garbage collection found in use. It waits until two more collections
// have begun. Its own small requests cause them, or else the runtime starts one every two minutes. The next collection
// begins at the size in use plus GOGC percent (go.dev/doc/gc-guide), so heap computes the size in use from that. The
// result includes stacks and globals, which do not grow with the number of kept sessions. The size of the heap itself
// would be wrong, because dead objects stay in it until they are swept.
func (b *bencher) heap(d *process) (float64, error) {
	begun, err := metric(d.url, "go_gc_duration_seconds_count")
	if err != nil {
		return 0, err
	}
	for {
		collections, err := metric(d.url, "go_gc_duration_seconds_count") // This request allocates.
		if err != nil {
			return 0, err
		}
		if collections >= begun+2 {
			next, err := metric(d.url, "go_memstats_next_gc_bytes")
			percent, ofGOGC := metric(d.url, "go_gc_gogc_percent")
			return next / (1 + percent/100), errors.Join(err, ofGOGC)
		}
	}
}

// connections measures T7.
func (b *bencher) connections(ctx context.Context) measurement {
	p := plan{Clients: 8, Sessions: b.count(300)}
	names := []string{"plain", "streamed", "R1 plain", "R1 streamed"}
	opened := map[string]series{}
	return measurement{part: func() error {
		a, err := b.arena(ctx, 4, []string{"-late", "3ms", "-dwell", "2ms"})
		if err != nil {
			return err
		}
		for i, run := range []func() (outcome, error){
			func() (outcome, error) { return whole(a.load(ctx, p)) },
			func() (outcome, error) { return whole(a.load(ctx, p, "-mode", "stream")) },
			func() (outcome, error) { return a.reference(ctx, p) },
			func() (outcome, error) { return a.reference(ctx, p, "-stream") },
		} {
			var each float64
			if each, err = opening(a, run, i >= 2); err != nil {
				break
			}
			opened[names[i]] = append(opened[names[i]], each)
		}
		a.stop()
		return err
	}, figures: func() {
		for i, what := range []string{"plain", "streamed"} {
			b.add(figure{
				Name:   "T7",
				What:   "new connections per 1,000 calls with late terminators, " + what + " sessions",
				Reach:  "0",
				Then:   "0",
				Values: opened[names[i]],
				Beside: "R1 " + short(opened[names[2+i]].pseudomedian()),
			})
		}
	}}
}

// opening is how many connections a run opens per 1,000 calls, beyond the connections that it needs. If own is true,
// the run has a process of its own, which needs 8 * 4 connections: each of 8 clients calls 4 members at once. Otherwise
// an earlier run has opened the connections that the daemon needs.
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

// chunks measures T8: how much more processor time a streamed session takes if its texts come in many chunks instead of
// few. The chunks of a reply come together, so that the kernel's work for each packet is not measured. There are so
// many chunks that they take a multiple of everything else in a session.
func (b *bencher) chunks(ctx context.Context) measurement {
	const few, many = 40, 4000
	p := plan{Clients: 8, Sessions: b.count(40)}
	var mine, theirs [2]series // us a session, by arena
	return measurement{part: func() error {
		var arenas []*arena
		for _, n := range []int{few, many} {
			a, err := b.arena(ctx, 4, []string{"-burst", "-answer", "8000", "-review", "8000", "-chunks", strconv.Itoa(n)})
			if err != nil {
				return err
			}
			defer a.stop()
			arenas = append(arenas, a)
		}
		for round := range b.often() + 1 {
			for i, a := range arenas {
				var ours, r1 float64
				if err := turns(round, func() (err error) {
					_, ours, err = a.asked(ctx, p, "-mode", "stream")
					return err
				}, func() error {
					one, err := a.reference(ctx, p, "-stream")
					r1 = one.CPU
					return err
				}); err != nil {
					return err
				}
				if round > 0 { // the first round warms up
					mine[i], theirs[i] = append(mine[i], ours), append(theirs[i], r1)
				}
			}
		}
		return nil
	}, figures: func() {
		chunk := func(of [2]series) (each series) {
			for i := range of[0] {
				each = append(each, (of[1][i]-of[0][i])/(9*(many-few)))
			}
			return each
		}
		ours, r1 := chunk(mine), chunk(theirs)
		b.add(figure{
			Name: "T8", What: "CPU per relayed stream chunk, provider to watcher / go-openai's Recv, both over HTTP",
			Reach: "<= 0.5", Then: "<= 0.25", Values: ours.over(r1),
			Beside: fmt.Sprintf("Recv %s us, daemon %s us", short(r1.pseudomedian()), short(ours.pseudomedian())),
		})
	}}
}

// streamed measures T16.
func (b *bencher) streamed(ctx context.Context) measurement {
	cost := map[string]series{}
	return measurement{part: func() error {
		a, err := b.arena(ctx, 4, []string{"-dwell", b.dwell("1s"), "-chunks", "50"})
		if err != nil {
			return err
		}
		defer a.stop()
		for round := range b.often() + 1 {
			p := plan{Rate: 40, During: b.during(4 * time.Second), Seed: round}
			took := func(name string, cpu float64) {
				if round > 0 { // the first round warms up
					cost[name] = append(cost[name], cpu)
				}
			}
			ask := func(mode string) func() error {
				return func() error {
					_, cpu, err := a.asked(ctx, p, "-mode", mode)
					took(mode, cpu)
					return err
				}
			}
			refer := func(name string, args ...string) func() error {
				return func() error {
					o, err := a.reference(ctx, p, args...)
					took(name, o.CPU)
					return err
				}
			}
			if err := turns(round, ask("plain"), ask("stream"), ask("kept"), refer("R1"), refer("R1 stream", "-stream")); err != nil {
				return err
			}
		}
		return nil
	}, figures: func() {
		const load = "arrivals at random, 40/s"
		ratio := func(one, to string) series { return cost[one].over(cost[to]) }
		b.add(figure{
			Name:   "T16",
			What:   "CPU of a streamed session, every text in 50 chunks 20 ms apart, " + load + " / a plain one",
			Reach:  "<= 1.25",
			Then:   "<= 1.15",
			Values: ratio("stream", "plain"),
			Local:  true,
			Beside: fmt.Sprintf("plain %s us; R1 streamed / R1 plain %s",
				short(cost["plain"].pseudomedian()), ratio("R1 stream", "R1")),
		})
		b.add(figure{
			Name:   "T16",
			What:   "CPU of a streamed session / R1, streamed, " + load,
			Values: ratio("stream", "R1 stream"),
		})
		b.add(figure{
			Name:   "T16",
			What:   "CPU of a session that is kept and streamed / a plain one, " + load,
			Reach:  "<= 1.6",
			Then:   "<= 1.4",
			Values: ratio("kept", "plain"),
			Local:  true,
		})
		b.add(figure{
			Name:   "T16",
			What:   "CPU of a session that is kept and streamed / a streamed one, " + load,
			Values: ratio("kept", "stream"),
		})
	}}
}

// simulated is the name of a file with this number of simulated sessions, of 12 records each.
func (b *bencher) simulated(ctx context.Context, sessions int) (string, error) {
	name := filepath.Join(b.dir, fmt.Sprintf("simulated%d.jsonl", sessions))
	if _, err := os.Stat(name); err == nil {
		return name, nil
	}
	_, err := spent(ctx, b.councild, "simulate", "--sessions", strconv.Itoa(sessions), "--out", name)
	return name, err
}

// report measures T10.
func (b *bencher) report(ctx context.Context) measurement {
	// These are by program: councild's start, councild's report, R2 without records, and R2 with records.
	var wall, cpu [4]series
	run := func(i int, program string, args ...string) func() error {
		return func() error {
			e, err := spent(ctx, program, args...)
			wall[i], cpu[i] = append(wall[i], e.wall.Seconds()*1000), append(cpu[i], e.cpu.Seconds()*1000)
			return err
		}
	}
	return measurement{part: func() error {
		file, err := b.simulated(ctx, 1000)
		if err != nil {
			return err
		}
		for round := range 3 * b.each() {
			if err := turns(round, run(0, b.councild, "version"),
				run(1, b.councild, "bias-report", "--input", file, "--sessions", "0", "--days", "0"),
				run(2, b.self, "read", "-file", os.DevNull), run(3, b.self, "read", "-file", file)); err != nil {
				return err
			}
		}
		return nil
	}, figures: func() {
		b.add(figure{
			Name:   "T10",
			What:   "whole report, all models, 1,000 sessions x 12, cold process / start of the process",
			Reach:  "<= 4.2",
			Then:   "<= 3",
			Values: wall[1].over(wall[0]),
			Local:  true,
			Beside: fmt.Sprintf("start %s ms, report %s ms",
				short(wall[0].pseudomedian()), short(wall[1].pseudomedian())),
		})
		b.add(figure{
			Name:   "T10",
			What:   "CPU of the whole report / R2 reading the same records, each without the start of its process",
			Values: cpu[1].less(cpu[0]).over(cpu[3].less(cpu[2])),
			Beside: fmt.Sprintf("start and report %s and %s ms, start and R2 %s and %s ms",
				short(cpu[0].pseudomedian()), short(cpu[1].pseudomedian()), short(cpu[2].pseudomedian()), short(cpu[3].pseudomedian())),
		})
	}}
}

// firstPaint returns how many files the page loads, and how many bytes they have when compressed. Both include
// index.html.
func (b *bencher) firstPaint(ctx context.Context) (files, total int, _ error) {
	a, err := b.arena(ctx, 4, nil)
	if err != nil {
		return 0, 0, err
	}
	defer a.stop()
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
		return 0, 0, err
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
			return 0, 0, err
		}
		if strings.HasSuffix(path, ".js") {
			for _, m := range regexp.MustCompile(`(?m)^import [^;]*?"\./([^"]+)"`).FindAllStringSubmatch(text, -1) {
				queue = append(queue, []string{"", "/assets/" + m[1]})
			}
		}
	}
	return 1 + len(seen), total, nil
}

// page measures T14: the files that index.html names, and what a test of the page says about the longest task.
func (b *bencher) page(ctx context.Context) measurement {
	var files, total int
	var longest series
	return measurement{part: func() (err error) {
		if files, total, err = b.firstPaint(ctx); err != nil || b.quick {
			return err
		}
		cmd := started(ctx, "go", "test", "-count=1", "-run", "^TestLongestTask$", "-v", ".")
		cmd.Dir = filepath.Join(b.root, "e2e")
		out, err := cmd.CombinedOutput()
		m := regexp.MustCompile(`longest task (\d+) ms at first, (\d+) ms live, (\d+) ms after`).FindSubmatch(out)
		if err != nil || m == nil {
			return fmt.Errorf("the page in a browser: %w\n%s", cmp.Or(err, errors.New("the test prints no longest task")), out)
		}
		ms, err := strconv.ParseFloat(string(m[2]), 64)
		longest = append(longest, ms)
		return err
	}, figures: func() {
		b.add(figure{
			Name:   "T14",
			What:   "the page's first paint, bytes of the bodies over the wire",
			Reach:  "<= 60 KB",
			Values: series{float64(total)},
			Beside: fmt.Sprintf("%d files", files),
		})
		if b.quick {
			return
		}
		b.add(figure{
			Name:   "T14",
			What:   "longest task while the events of a session are drawn, Chromium, ms (0: none over 50)",
			Reach:  "<= 50",
			Values: longest,
			Local:  true,
		})
	}}
}

// start measures T15.
func (b *bencher) start(ctx context.Context) measurement {
	var ready, idle series
	var size float64
	return measurement{part: func() error {
		p, err := b.provider(ctx)
		if err != nil {
			return err
		}
		defer p.stop()
		for range b.each() {
			d, took, err := b.daemon(ctx, p, 4)
			if err != nil {
				return err
			}
			time.Sleep(time.Second)
			ready, idle = append(ready, took.Seconds()*1000), append(idle, float64(memory(d.cmd.Process.Pid, "VmRSS"))/1024)
			d.stop()
		}
		info, err := os.Stat(b.councild)
		if err == nil {
			size = float64(info.Size()) / 1e6
		}
		return err
	}, figures: func() {
		for _, f := range []figure{
			{What: "start of `serve` to ready, ms", Reach: "10", Values: ready, Local: true},
			{What: "idle memory, MiB", Reach: "20", Values: idle},
			{What: "binary, MB", Reach: "23", Values: series{size}},
		} {
			f.Name = "T15"
			b.add(f)
		}
	}}
}

// benchmarks measures what Go benchmarks of councild measure. The benchmarks of the readers run in every round: the one
// of encoding/json takes long, and is the base of a ratio. The other benchmarks run in one round of each part.
func (b *bencher) benchmarks(ctx context.Context) measurement {
	values := map[string]series{}
	return measurement{part: func() error {
		for round := range b.each() {
			names, packages := "BenchmarkRead|BenchmarkAppend", []string{"./internal/store"}
			if round == 0 {
				names += "|BenchmarkComplete|BenchmarkStreamChunk|BenchmarkAudit|BenchmarkReportWindow"
				packages = append(packages, "./internal/llm", "./internal/bias", "./internal/daemon")
			}
			if err := b.goBench(ctx, values, names, packages...); err != nil {
				return err
			}
		}
		for name, of := range map[string][]string{
			"T4": {"BenchmarkComplete/answer/councild allocs/op", "BenchmarkComplete/answer/go-openai allocs/op"},
			"T8": {"BenchmarkStreamChunk/plain ns/chunk", "BenchmarkStreamChunk/plain recv-ns/chunk"},
			"T9": {
				"BenchmarkRead/read cpu-ns/record", "BenchmarkRead/encoding/json cpu-ns/record",
				"BenchmarkRead/bytes cpu-ns/record",
				"BenchmarkReportWindow/old=1000008 reading-cpu-ms",
			},
			"T11": {"BenchmarkAppend/writers=512/store sessions/s", "BenchmarkAppend/writers=512/fsync_each sessions/s"},
			"T12": {"BenchmarkRead/read_closed bytes/session"},
			"T13": {"BenchmarkAudit ns/op"},
		} {
			for _, metric := range of {
				if len(values[metric]) == 0 {
					return fmt.Errorf("%s: no benchmark gave %q", name, metric)
				}
			}
		}
		return nil
	}, figures: func() {
		library := values["BenchmarkComplete/answer/go-openai allocs/op"]
		b.add(figure{
			Name:   "T4",
			What:   "allocations of `llm.Complete` / go-openai alone",
			Reach:  "<= 1.0",
			Then:   "<= 0.6",
			Values: values["BenchmarkComplete/answer/councild allocs/op"].over(library),
			Beside: "go-openai " + short(library.pseudomedian()),
		})
		receive := values["BenchmarkStreamChunk/plain recv-ns/chunk"]
		b.add(figure{
			Name:   "T8",
			What:   "of that the client alone, time in one process (`BenchmarkStreamChunk`)",
			Values: values["BenchmarkStreamChunk/plain ns/chunk"].over(receive),
			Beside: fmt.Sprintf("Recv %s us", short(receive.pseudomedian()/1000)),
		})
		decode := values["BenchmarkRead/encoding/json cpu-ns/record"]
		window := values["BenchmarkReportWindow/old=1000008 reading-cpu-ms"]
		for i := range window {
			window[i] /= 1_001_208 * 1e-6 * decode.pseudomedian() // ms of each million of records / (ns * a million)
		}
		b.add(figure{
			Name:   "T9",
			What:   "reading of 1,000,000 records, newest 100 sessions of a store as a daemon leaves it, CPU / R2",
			Reach:  "<= 0.01",
			Then:   "<= 0.002",
			Values: window,
			Beside: fmt.Sprintf("R2 %s us a record; R3, which counts lines, %s of it",
				short(decode.pseudomedian()/1000), short(values["BenchmarkRead/bytes cpu-ns/record"].over(decode).pseudomedian())),
		})
		b.add(figure{
			Name:   "T9",
			What:   "the same, all sessions, in one file, without a window",
			Reach:  "<= 0.15",
			Then:   "<= 0.06",
			Values: values["BenchmarkRead/read cpu-ns/record"].over(decode),
		})
		each := values["BenchmarkAppend/writers=512/fsync_each sessions/s"]
		b.add(figure{
			Name:   "T11",
			What:   "durable sessions/s at 512 writers / one fsync each",
			Reach:  ">= 20",
			Then:   ">= 60",
			Values: values["BenchmarkAppend/writers=512/store sessions/s"].over(each),
			Beside: fmt.Sprintf("one fsync each %s/s", short(each.pseudomedian())),
			Local:  true, // the time of an fsync depends on the disk
		})
		b.add(figure{
			Name: "T12", What: "bytes per session in a closed segment", Reach: "<= 224", Then: "<= 200",
			Values: values["BenchmarkRead/read_closed bytes/session"][:1],
		})
		audit := values["BenchmarkAudit ns/op"]
		for i := range audit {
			audit[i] /= 1e6
		}
		b.add(figure{
			Name:   "T13",
			What:   "audit per session, resampling included, ms",
			Reach:  "0.03: kept",
			Values: audit,
			Local:  true,
		})
	}}
}

// goBench runs Go benchmarks once, and adds what they report to values, by benchmark and unit.
func (b *bencher) goBench(ctx context.Context, values map[string]series, names string, packages ...string) error {
	benchtime := "1s"
	if b.quick {
		benchtime = "10ms"
	}
	args := []string{"test", "-run", "^$", "-bench", "^(" + names + ")$", "-benchmem", "-benchtime", benchtime}
	cmd := started(ctx, "go", slices.Concat(args, packages)...)
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
	return nil
}
