package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"time"
)

// tolerated is the largest ratio of a new binary to an old one that pair accepts.
const tolerated = 1.05

// paired is a figure of two binaries and of R1. Each round has one value of each program.
type paired struct {
	name, what   string
	old, new, r1 series
}

// slower reports whether the ratio of the new binary to the old binary has an interval that lies above the constant
// tolerated.
func (p *paired) slower() bool {
	low, _ := p.new.over(p.old).interval()
	return low > tolerated
}

// pair measures two binaries in turns, and returns an error if the new one is slower than tolerated. R1 runs between
// the two, so that neither has the better position. If pair cannot measure, it ends the process with exit code 2. Exit
// code 1 always means a slower binary.
func pair(ctx context.Context, args []string) error {
	slower, err := measurePair(ctx, args)
	if err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(2)
	}
	if len(slower) > 0 {
		return fmt.Errorf("the new binary takes more than %v of what the old one takes: %s",
			tolerated, strings.Join(slower, ", "))
	}
	return err
}

// pairing has two binaries that are measured. The first one is the old one.
type pairing struct {
	programs [2]*workplace
	bencher
}

// measurePair returns the names of the figures in which the new binary is slower.
func measurePair(ctx context.Context, args []string) (slower []string, err error) {
	flags := flag.NewFlagSet("pair", flag.ContinueOnError)
	rounds := flags.Int("rounds", 6, "rounds of T5, at least 6 for an interval; T16 has twice as many, "+
		"T1 and T2 three times")
	quick := flags.Bool("quick", false, "run a few sessions of each figure, to see that the program works")
	traces := flags.Bool("traces", false, "have the newer binary send traces to this program; name one binary twice "+
		"to see what traces cost")
	if err := flags.Parse(args); err != nil {
		return nil, err
	}
	if flags.NArg() != 2 {
		return nil, errors.New("name two binaries of councild, the older one first")
	}
	dir, err := os.MkdirTemp("", "councild-bench-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	b := &pairing{bencher: bencher{rounds: *rounds, quick: *quick}}
	for i := range b.programs {
		w := &workplace{dir: filepath.Join(dir, strconv.Itoa(i)), self: self}
		if w.councild, err = filepath.Abs(flags.Arg(i)); err == nil {
			err = os.Mkdir(w.dir, 0o700)
		}
		if err != nil {
			return nil, err
		}
		b.programs[i] = w
	}
	if *traces {
		var exports atomic.Int64
		collector := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			exports.Add(1)
			_, _ = io.Copy(io.Discard, r.Body)
		}))
		defer collector.Close()
		b.programs[1].env = []string{"OTEL_EXPORTER_OTLP_ENDPOINT=" + collector.URL}
		defer func() {
			if err == nil && exports.Load() == 0 {
				err = errors.New("the newer binary sent no traces")
			}
		}()
	}
	var all []*paired
	for _, measure := range []func(context.Context) ([]*paired, error){b.open, b.inFlight, b.streamed} {
		figures, err := measure(ctx)
		if err != nil {
			return nil, err
		}
		all = append(all, figures...)
	}
	printPaired(os.Stdout, all)
	for _, p := range all {
		if p.slower() {
			slower = append(slower, p.name)
		}
	}
	return slower, nil
}

// printPaired prints the ratios of two binaries, each with its interval.
func printPaired(w io.Writer, all []*paired) {
	fmt.Fprintln(w, "| # | figure | rounds | old / R1 | new / R1 | new / old |\n|---|---|---|---|---|---|")
	for _, p := range all {
		fmt.Fprintf(w, "| %s | %s | %d | %s | %s | %s |\n",
			p.name, p.what, len(p.new), p.old.over(p.r1), p.new.over(p.r1), p.new.over(p.old))
	}
	fmt.Fprintln(w, "\nIn brackets: the interval of the estimate, with 95 % or more. "+
		"For fewer than six rounds it is their range.")
}

// arenas starts both binaries with one provider.
func (b *pairing) arenas(ctx context.Context, provider ...string) (both [2]*arena, stop func(), err error) {
	if both[0], err = b.programs[0].arena(ctx, 4, provider); err != nil {
		return both, nil, err
	}
	first := both[0]
	d, _, err := b.programs[1].daemon(ctx, first.provider, 4)
	if err != nil {
		first.stop()
		return both, nil, err
	}
	second := &arena{workplace: b.programs[1], provider: first.provider, daemon: d, workers: map[string]*worker{}}
	both[1] = second
	return both, func() {
		for _, k := range second.workers {
			k.stop()
		}
		d.stop()
		first.stop()
	}, nil
}

// open measures T1 and the p50 of T2.
func (b *pairing) open(ctx context.Context) ([]*paired, error) {
	both, stop, err := b.arenas(ctx)
	if err != nil {
		return nil, err
	}
	defer stop()
	for _, a := range both {
		if err := a.warm(ctx, plan{Clients: 64, Sessions: b.count(600)}); err != nil {
			return nil, err
		}
	}
	best, err := both[0].reference(ctx, plan{Clients: 256, Sessions: b.count(3000)})
	if err != nil {
		return nil, err
	}
	cpu := &paired{name: "T1", what: "CPU of a session"}
	added := &paired{name: "T2", what: "added p50 over the critical path, 20 ms provider"}
	took := func(o outcome, spent float64, cpu, added *series) error {
		seen, err := both[0].provider.stats()
		*cpu = append(*cpu, spent)
		*added = append(*added, o.P50-3*seen.DwellP50)
		return err
	}
	if _, err := both[0].provider.stats(); err != nil { // The provider then forgets the dwells so far.
		return nil, err
	}
	for round := range 3 * b.rounds {
		p := plan{
			Rate:   loadShare * float64(best.Sessions) / best.Seconds,
			During: b.during(4 * time.Second),
			Seed:   round,
		}
		ask := func(a *arena, cpu, added *series) func() error {
			return func() error {
				o, spent, err := a.asked(ctx, p)
				return errors.Join(err, took(o, spent, cpu, added))
			}
		}
		if err := turns(round, ask(both[0], &cpu.old, &added.old), func() error {
			o, err := both[0].reference(ctx, p)
			return errors.Join(err, took(o, o.CPU, &cpu.r1, &added.r1))
		}, ask(both[1], &cpu.new, &added.new)); err != nil {
			return nil, err
		}
	}
	return []*paired{cpu, added}, nil
}

// inFlight measures T5. Each round starts each program anew, with a provider of its own.
func (b *pairing) inFlight(ctx context.Context) ([]*paired, error) {
	load := plan{Rate: float64(b.count(3500 / 4)), During: 4 * time.Second}
	provider := []string{"-dwell", b.dwell("5s")}
	peak := &paired{name: "T5", what: "peak memory per session in flight, 5 s provider, 3,500 sessions"}
	ask := func(w *workplace, to *series) func() error {
		return func() error {
			a, err := w.arena(ctx, 4, provider)
			if err != nil {
				return err
			}
			defer a.stop()
			idle := memory(a.daemon.cmd.Process.Pid, "VmRSS")
			o, err := whole(a.load(ctx, load))
			*to = append(*to, float64(memory(a.daemon.cmd.Process.Pid, "VmHWM")-idle)/float64(max(o.Sessions, 1)))
			return err
		}
	}
	for round := range b.rounds {
		if err := turns(round, ask(b.programs[0], &peak.old), func() error {
			a, err := b.programs[0].arena(ctx, 0, provider)
			if err != nil {
				return err
			}
			defer a.stop()
			o, err := a.reference(ctx, load)
			peak.r1 = append(peak.r1, float64(o.PeakKB-o.IdleKB)/float64(max(o.Sessions, 1)))
			return err
		}, ask(b.programs[1], &peak.new)); err != nil {
			return nil, err
		}
	}
	return []*paired{peak}, nil
}

// streamed measures what T16 says of a streamed session.
func (b *pairing) streamed(ctx context.Context) ([]*paired, error) {
	both, stop, err := b.arenas(ctx, "-dwell", b.dwell("1s"), "-chunks", "50")
	if err != nil {
		return nil, err
	}
	defer stop()
	cpu := &paired{name: "T16", what: "CPU of a streamed session, every text in 50 chunks"}
	for round := range 2*b.rounds + 1 {
		p := plan{Rate: 40, During: b.during(4 * time.Second), Seed: round}
		ask := func(a *arena, to *series) func() error {
			return func() error {
				_, spent, err := a.asked(ctx, p, "-mode", "stream")
				*to = append(*to, spent)
				return err
			}
		}
		if err := turns(round, ask(both[0], &cpu.old), func() error {
			o, err := both[0].reference(ctx, p, "-stream")
			cpu.r1 = append(cpu.r1, o.CPU)
			return err
		}, ask(both[1], &cpu.new)); err != nil {
			return nil, err
		}
	}
	for _, s := range []*series{&cpu.old, &cpu.new, &cpu.r1} {
		*s = (*s)[1:] // the first round warms up
	}
	return []*paired{cpu}, nil
}
