package llm

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"math"
	"strconv"
	"strings"
	"unicode"

	"github.com/councild/councild/internal/council"
)

// received is what is read of a completion, or of one chunk of a stream.
type received struct {
	text, refusal, finish string
	chosen                bool // there is a choice of index 0, the only one that was asked for
	failed                bool // it reports an error
	usage                 council.Usage
}

// choice is the part of a choice that is read.
type choice struct {
	Index        figure  `json:"index"`
	Message      message `json:"message"` // of a completion
	Delta        message `json:"delta"`   // of a chunk
	FinishReason string  `json:"finish_reason"`
}

type message struct {
	Content json.RawMessage `json:"content"` // a text, null, or a list of parts
	Refusal string          `json:"refusal"`
}

// figure is a number that must not spoil the text beside it: whatever else stands
// in its place is no number.
type figure struct {
	value float64
	known bool
}

// UnmarshalJSON implements json.Unmarshaler. It never fails.
func (f *figure) UnmarshalJSON(b []byte) error {
	value, err := strconv.ParseFloat(string(b), 64)
	*f = figure{value, err == nil}
	return nil
}

// maxElements bounds the lists of a reply, which have a few elements: a million
// empty objects must take neither the memory nor the time of a million structs.
const maxElements = 10_000

// readReply reads a completion, or a chunk of a stream. It gives up soon after ctx
// has ended.
func readReply(ctx context.Context, data []byte, chunk bool) (r received, err error) {
	var body struct {
		Choices json.RawMessage `json:"choices"`
		Usage   json.RawMessage `json:"usage"`
		Error   json.RawMessage `json:"error"`
	}
	if err := json.Unmarshal(data, &body); err != nil {
		return r, err
	}
	r.failed = given(body.Error)
	r.usage = readUsage(body.Usage)
	err = each(ctx, body.Choices, func(c choice) (err error) {
		if c.Index.value != 0 || r.chosen {
			return nil
		}
		m := c.Message
		if chunk {
			m = c.Delta
		}
		r.chosen, r.refusal, r.finish = true, m.Refusal, c.FinishReason
		r.text, err = readContent(ctx, m.Content)
		return err
	})
	return r, err
}

// given reports whether a field holds anything.
func given(raw json.RawMessage) bool { return len(raw) > 0 && string(raw) != "null" }

// each calls f with every element of a JSON list.
func each[T any](ctx context.Context, list json.RawMessage, f func(T) error) error {
	if !given(list) {
		return nil
	}
	d := json.NewDecoder(bytes.NewReader(list))
	if begin, err := d.Token(); err != nil || begin != json.Delim('[') {
		return errors.New("not a list")
	}
	for range maxElements {
		if !d.More() {
			return nil
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		var v T
		if err := d.Decode(&v); err != nil {
			return err
		}
		if err := f(v); err != nil {
			return err
		}
	}
	return errors.New("too long a list")
}

// readContent returns the text of a message, which some providers give in parts.
func readContent(ctx context.Context, raw json.RawMessage) (text string, err error) {
	if !bytes.HasPrefix(raw, []byte("[")) {
		if given(raw) {
			err = json.Unmarshal(raw, &text)
		}
		return text, err
	}
	var b strings.Builder
	err = each(ctx, raw, func(part struct {
		Text string `json:"text"`
	}) error {
		b.WriteString(part.Text)
		return nil
	})
	return b.String(), err
}

// readUsage reads what the provider says that a request consumed; cost is
// OpenRouter's extension, in US dollars. A completion has at least one token on
// either side, so a zero is a figure that was not given.
func readUsage(raw json.RawMessage) (u council.Usage) {
	var given struct {
		Input  figure `json:"prompt_tokens"`
		Output figure `json:"completion_tokens"`
		Cost   figure `json:"cost"`
	}
	if json.Unmarshal(raw, &given) != nil { // missing, or no object
		return u
	}
	tokens := func(f figure) *int64 {
		const exact = 1 << 53 // beyond, a float64 does not hold every whole number
		if n := int64(min(max(f.value, 0), exact)); n > 0 && n < exact && float64(n) == f.value {
			return &n
		}
		return nil
	}
	u.InputTokens, u.OutputTokens = tokens(given.Input), tokens(given.Output)
	if cost := given.Cost; cost.known && cost.value >= 0 && !math.IsInf(cost.value, 0) {
		u.CostUSD = &cost.value
	}
	return u
}

// blank reports whether a text shows nothing: blanks, control characters, and
// characters without width, such as U+200B.
func blank(text string) bool {
	return !strings.ContainsFunc(text, func(r rune) bool {
		return unicode.In(r, unicode.L, unicode.N, unicode.P, unicode.S) && !unicode.Is(unicode.Other_Default_Ignorable_Code_Point, r) && r != brailleBlank
	})
}

const brailleBlank = '\u2800' // a symbol of six dots, none of which is raised
