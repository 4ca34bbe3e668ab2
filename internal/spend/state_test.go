package spend_test

import (
	"bytes"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/councild/councild/internal/council"
	"github.com/councild/councild/internal/spend"
)

// written returns the lines of a ledger with three sessions, one of them without an end.
func written(t *testing.T) [][]byte {
	t.Helper()
	ledger := &memory{}
	for _, id := range []string{"1", "2", "3"} {
		a := spend.NewBook(spend.Options{
			Day: new(spend.Dollar), Tariff: tariffs, Ledger: ledger,
			Now: func() time.Time { return time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC) },
		})
		if failure := a.Begin(t.Context(), spend.Opening{Session: id, Token: `"usd":7,"usd":8`, Models: []string{"a"}}); failure != nil {
			t.Fatal(failure)
		}
		for range 2 {
			r, failure := a.Reserve(id, one(council.Stage1, 7))
			if failure != nil {
				t.Fatal(failure)
			}
			r.Charge(t.Context(), spend.Billed{CostUSD: new(spend.Dollar / 8)})
		}
		if id != "3" {
			a.End(t.Context(), id, false)
		}
	}
	return ledger.lines
}

// No byte of a line can change unnoticed, also not to another digit, and also not in the checksum and its key.
func TestEveryByteIsChecked(t *testing.T) {
	for _, line := range written(t) {
		text := bytes.TrimSuffix(line, []byte("\n"))
		if len(text) < 100 {
			t.Errorf("a line of %d bytes", len(text))
		}
		if _, err := spend.ParseLine(text); err != nil {
			t.Fatal(err)
		}
		for i := range text {
			for bit := range 8 {
				flipped := bytes.Clone(text)
				flipped[i] ^= 1 << bit
				_, err := spend.ParseLine(flipped)
				if _, ok := errors.AsType[*spend.Damage](err); !ok {
					t.Errorf("bit %d of byte %d: %s passes: %v", bit, i, flipped, err)
				}
			}
		}
	}
}

// What is no line of a ledger is told by its reason. Lines that earlier releases wrote have no checksum, and are read.
func TestParseLine(t *testing.T) {
	const open = `{"type":"open","day":"2026-11-21","session":"1","token":"","council":"a,b;a","limit_usd":null}`
	sealed := strings.TrimSpace(string(written(t)[0]))
	for text, want := range map[string]string{
		open:   "",
		sealed: "",
		`{"type":"open","day":"2026-11-21","session":"1","token":"","council":"","limit_usd":3,"upper_usd":0.5}`: "",
		`{"type":"calls","day":"2026-11-21","session":"1","token":"","council":"","limit_usd":null,"calls":[{"stage":"stage1",` +
			`"model":"a","provider":"","attempt":1,"tokens":{"input":3,"output":4},"usd":null,"source":"bound"}]}`: "",
		"":                                    "not_json",
		"garbage":                             "not_json",
		open[:40]:                             "not_json",
		sealed[:40]:                           "not_json",
		open + open:                           "not_json",
		"\x00\x00\x00":                        "not_json",
		open[:30] + "\xff":                    "not_json",
		"{}":                                  "no_entry",
		"null":                                "no_entry",
		"[1]":                                 "no_entry",
		`"open"`:                              "no_entry",
		`{"type":"refund"}`:                   "no_entry",
		sealed + " ":                          "no_entry", // it would pass for an old line but for its checksum
		sealed[:len(sealed)-2] + `0"}`:        "no_entry",
		strings.Replace(open, `"1"`, `""`, 1): "no_entry",
		strings.Replace(open, `"open"`, `"refund"`, 1):                 "no_entry",
		strings.Replace(open, `"2026-11-21"`, `"tomorrow"`, 1):         "no_entry",
		strings.Replace(open, `"limit_usd":null`, `"limit_usd":-1`, 1): "no_entry",
		strings.Replace(open, `}`, `,"more":1}`, 1):                    "no_entry",
		strings.Replace(sealed, `"crc"`, `"Crc"`, 1):                   "no_entry",
		strings.Replace(sealed, "2026-11-21", "2026-11-22", 1):         "bad_checksum",
	} {
		_, err := spend.ParseLine([]byte(text))
		got := ""
		if damage, ok := errors.AsType[*spend.Damage](err); ok {
			got = damage.Reason
		}
		if got != want {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
}

// The end of a ledger shows what is missing, and an acceptance holds until something else is lost.
func TestCheck(t *testing.T) {
	all := written(t)
	tally := spend.Tally(all...)
	if tally.Lines != 5 || tally.Days["2026-11-21"] != spend.Dollar/2 {
		t.Fatalf("%+v", tally)
	}
	var end spend.End
	end.Add(spend.Tally(all[0]))
	end.Add(spend.Tally(bytes.Join(all[1:], nil)))
	again, err := spend.ParseEnd(end.Text())
	if err != nil || again.Lines != 5 || again.Days["2026-11-21"] != spend.Dollar/2 {
		t.Fatalf("%+v, %v", again, err)
	}
	check := func(when, want string, damaged bool, text ...[]byte) spend.State {
		t.Helper()
		s, err := spend.Check(lines(string(bytes.Join(text, nil))), &end)
		if got := words(s.Lines, s.Unreadable, s.Missing, s.MissingUSD["2026-11-21"]); err != nil || got != want || s.Damaged != damaged {
			t.Errorf("%s: %s, damaged: %v, %v, want %s", when, got, s.Damaged, err, want)
		}
		if (s.Problem() != "") != damaged {
			t.Errorf("%s: %q", when, s.Problem())
		}
		return s
	}
	flipped := bytes.Replace(all[1], []byte("0.125"), []byte("0.025"), 1)
	check("whole", "5 0 0 0", false, all...)
	check("longer than its end", "6 0 0 0", false, append(all[:5:5], all[0])...)
	check("cut", "3 0 2 0.25", true, all[:3]...)
	check("without its first lines", "3 0 2 0.25", true, all[2:]...)
	check("empty", "0 0 5 0.5", true)
	check("with garbage", "5 1 0 0", true, append([][]byte{[]byte("garbage\n")}, all...)...)
	lost := check("with a flipped digit", "4 1 0 0.25", true, all[0], flipped, all[2], all[3], all[4])
	if len(lost.Reasons) != 1 || lost.Reasons[0].Reason != spend.ReasonChecksum {
		t.Errorf("%+v", lost.Reasons)
	}
	both := check("with both", "3 1 1 0.25", true, all[0], flipped, all[2], all[3])
	now := time.Date(2026, 11, 21, 13, 0, 0, 0, time.UTC)
	end.Accept(both, now)
	accepted := check("accepted", "3 1 0 0", false, all[0], flipped, all[2], all[3])
	if a := accepted.Accepted; len(a) != 1 || !a[0].At.Equal(now) || a[0].Unreadable != 1 || a[0].Missing != 1 ||
		a[0].MissingUSD["2026-11-21"] != spend.Dollar/4 {
		t.Errorf("%+v", a)
	}
	check("then one more flipped", "2 2 0 0.25", true, all[0], flipped, all[2], bytes.Replace(all[3], []byte("0.125"), []byte("0.625"), 1))
	check("then one more missing", "2 1 1 0.25", true, all[0], flipped, all[2])
	for i := range end.Text() {
		text := end.Text()
		text[i] ^= 1
		if _, err := spend.ParseEnd(text); err == nil && i < len(text)-1 {
			t.Errorf("byte %d of %s is not checked", i, text)
		}
	}
}

// FuzzParseLine reads any line without a panic. What it takes is read again as the same.
func FuzzParseLine(f *testing.F) {
	f.Add([]byte(`{"type":"open","day":"2026-11-21","session":"1","token":"","council":"a,b;a","limit_usd":null}`))
	f.Add([]byte(`{"type":"close","day":"2026-11-21","session":"1","calls":[{"usd":1},{"usd":0.000000000001}],"crc":"00000000"}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		_, err := spend.ParseLine(text)
		if _, ok := errors.AsType[*spend.Damage](err); err != nil && !ok {
			t.Error(err)
		}
		if tally := spend.Tally(text); tally.Lines > int64(1+bytes.Count(text, []byte("\n"))) {
			t.Errorf("%d lines", tally.Lines)
		}
	})
}
