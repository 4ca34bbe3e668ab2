package llm

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"slices"
	"strings"
	"unicode"

	"github.com/councild/councild/internal/council"
)

// received holds what was read of a completion, or of one chunk of a stream.
type received struct {
	text, refusal, finish string
	// reasoning is the thinking that the provider sends apart from the text. In a whole reply it also has the thinking
	// that was found in the text.
	reasoning string
	divided   bool // thinking was taken out of text
	// void says that the text that was passed on so far was thinking. The field text then holds the whole answer, which
	// still must be passed on.
	void bool
	// model is the provider's name for the model that replied. In a stream it is the last name that is not empty.
	model json.RawMessage
	id    json.RawMessage // the provider's id of the reply; in a stream it is the last one that is not empty
	// chosen says that the choice with index 0 has come. No other choice was asked for.
	chosen bool
	whole  bool            // the field text is a whole message, not a piece
	fault  json.RawMessage // the error that the reply reports, or nil
	used   *figures        // the usage as reported, or nil
	// part says that the field used covers only a part of the reply. The usage of the whole reply is then unknown.
	part        bool
	usage       council.Usage
	kinds       council.TokenKinds
	implausible int // how many figures of the usage are implausible
}

// count notes the usage of the reply, if there is one.
func (r *received) count(f *figures) {
	if r.used = f; f != nil {
		r.usage, r.kinds, r.implausible = f.read()
	}
}

// maxVersion is the maximum length of a model name or an id in a reply, in bytes.
const maxVersion = 200

// version returns the name of the model in the reply, or nil if there is none that can be shown.
func (r *received) version(hidden keys) *string {
	if name := printable(r.model, hidden); name != "" {
		return &name
	}
	return nil
}

// printable returns a name from a reply. It returns "" if the reply has no name, or one that cannot be shown.
func printable(raw json.RawMessage, hidden keys) string {
	var name string
	if !isNamed(raw) || json.Unmarshal(raw, &name) != nil {
		return ""
	}
	name = strings.TrimSpace(name)
	if len(name) > maxVersion || strings.ContainsFunc(name, func(c rune) bool { return !unicode.IsGraphic(c) }) {
		return ""
	}
	return hidden.removed(name)
}

// isNamed reports whether a reply has a name, such as that of its model. Some providers begin a stream with an empty
// name.
func isNamed(name json.RawMessage) bool { return given(name) && string(name) != `""` }

// choice holds the fields of a choice that are read.
type choice struct {
	Index        figure          `json:"index"`
	Message      *message        `json:"message"` // in a completion
	Delta        *message        `json:"delta"`   // in a chunk
	FinishReason string          `json:"finish_reason"`
	Error        json.RawMessage `json:"error"` // from OpenRouter, if a model failed in the middle of its reply
}

type message struct {
	Content json.RawMessage `json:"content"` // a text, null, or a list of parts
	Refusal string          `json:"refusal"`
	aside
}

// aside holds a model's thinking under the names that providers use. Some providers send it under two names.
type aside struct {
	ReasoningContent json.RawMessage `json:"reasoning_content"` // from DeepSeek and vLLM
	Reasoning        json.RawMessage `json:"reasoning"`         // from OpenRouter, Ollama and Groq
	Thinking         json.RawMessage `json:"thinking"`
	Details          json.RawMessage `json:"reasoning_details"` // from OpenRouter: a list of parts
}

// read returns the thinking. It ignores a field that it cannot read, because a reply is usable without its thinking.
func (a aside) read(ctx context.Context) string {
	for _, raw := range []json.RawMessage{a.ReasoningContent, a.Reasoning, a.Thinking, a.Details} {
		if text, more, err := readContent(ctx, raw); err == nil && text+more != "" {
			return text + more
		}
	}
	return ""
}

// maxElements is the most elements that a list in a reply may have. Usual lists have a few elements. Without this
// limit, a list of a million empty objects would take the memory and the time of a million structs.
const maxElements = 10_000

// readReply reads a completion, or a chunk of a stream. It stops soon after ctx has ended.
func readReply(ctx context.Context, data []byte, chunk bool) (r received, err error) {
	if r, ok := quickReply(data, chunk); ok {
		return r, nil
	}
	return anyReply(ctx, data, chunk)
}

// anyReply does what readReply does, for replies in any form.
func anyReply(ctx context.Context, data []byte, chunk bool) (r received, err error) {
	var body struct {
		ID      json.RawMessage `json:"id"`
		Model   json.RawMessage `json:"model"`
		Choices json.RawMessage `json:"choices"`
		Usage   json.RawMessage `json:"usage"`
		Error   json.RawMessage `json:"error"`
	}
	err = decode(ctx, data, &body)
	if _, ok := errors.AsType[*json.SyntaxError](err); ok {
		err = decode(ctx, quoteNaN(data), &body)
	}
	if err != nil {
		return r, err
	}
	r.id = body.ID
	r.model = body.Model
	r.count(readUsage(body.Usage))
	err = each(ctx, body.Choices, func(c choice) error {
		if c.Index.value != 0 || r.chosen {
			return nil
		}
		return r.choose(ctx, c, chunk)
	})
	switch {
	case err != nil || r.fault != nil:
	case isFault(body.Error), given(body.Error) && !r.chosen:
		r.fault = body.Error
		if len(data) <= maxErrorBytes { // The body may say more about the error.
			r.fault = data
		}
	case chunk && !r.chosen && r.usage == (council.Usage{}) && saysFailure(data):
		r.fault = data
	}
	return r, err
}

// choose reads a choice of a completion, or of a chunk.
func (r *received) choose(ctx context.Context, c choice, chunk bool) (err error) {
	if !chunk && c.Message == nil && c.Delta != nil {
		return errPiece
	}
	m := c.Message
	if chunk && c.Delta != nil {
		m = c.Delta
	}
	r.chosen = true
	r.finish = finishReason(c.FinishReason)
	r.whole = c.Message != nil && m == c.Message
	if isFault(c.Error) {
		r.fault = c.Error
	}
	if m == nil {
		return nil
	}
	r.refusal = m.Refusal
	var apart string
	if r.text, apart, err = readContent(ctx, m.Content); apart == "" {
		apart = m.read(ctx)
	}
	r.reasoning = clip(apart)
	return err
}

// isFault reports whether a member named error reports an error.
func isFault(raw json.RawMessage) bool {
	return given(raw) && !slices.Contains([]string{`""`, "{}", "[]", "false", "0"}, string(raw))
}

// saysFailure reports whether a chunk without a choice is an error, such as {"object": "error", "message": "..."}.
func saysFailure(data []byte) bool {
	c := readComplaint(data)
	return c.status != 0 || c.message != "" && slices.Contains(c.names, "error")
}

// These are finish reasons with the names of OpenAI and OpenRouter.
const (
	finishStop   = "stop"
	finishLength = "length"
	finishFilter = "content_filter"
	finishError  = "error"
	// finishBroken is DeepSeek's name for a reply that was broken off because the provider lacks resources.
	finishBroken = "insufficient_system_resource"
)

// finishReason returns OpenAI's name for why a model stopped. If OpenAI has no name for the reason, it returns the word
// unchanged. If the word says that there is no reason yet, it returns "". Otherwise a partial reply would count as
// complete.
func finishReason(word string) string {
	switch word {
	case "", finishStop, finishLength:
		return word
	}
	switch strings.TrimPrefix(plain(word), "finishreason") {
	case "null", "none", "unspecified", "":
		return ""
	case "stop", "endturn", "eos", "eostoken", "eosfound", "stopsequence", "stopped", "complete", "completed",
		"endofturn", "endofsequence":
		return finishStop
	case "length", "maxtokens", "maxtoken", "maxlength", "maxoutputtokens", "modellength", "maxnewtokens",
		"maxcompletiontokens", "lengthlimit", "tokenlimit", "outputlimit", "errorlimit",
		"modelcontextwindowexceeded", "contextlength", "contextwindowexceeded", "contextlengthexceeded":
		return finishLength
	case "contentfilter", "contentfiltered", "safety", "recitation", "prohibitedcontent", "blocklist", "blocked",
		"spii", "sensitive", "moderation", "errortoxic", "guardrailintervened", "guardrails", "refusal", "imagesafety",
		"flagged":
		return finishFilter
	case "error":
		return finishError
	case "insufficientsystemresource", "networkerror", "overloaded", "unavailable":
		return finishBroken
	default:
		return word
	}
}

// decode does what json.Unmarshal does, but stops when ctx has ended. It uses a Decoder, which looks for the end of the
// JSON piece by piece. With megabytes of JSON, this search takes most of the time.
func decode(ctx context.Context, data []byte, v any) error {
	d := json.NewDecoder(&cancellable{ctx, data})
	if err := d.Decode(v); err != nil {
		return err
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return errBehind
	}
	return nil
}

var (
	errBehind = errors.New("more text follows the JSON")
	errPiece  = errors.New("the reply is a piece of a stream")
)

// cancellable is a reader of the field data. It returns an error once ctx has ended.
type cancellable struct {
	ctx  context.Context //nolint:containedctx // the reader exists only during one call
	data []byte
}

// Read implements io.Reader.
func (c *cancellable) Read(p []byte) (int, error) {
	if c.ctx.Err() != nil {
		return 0, c.ctx.Err()
	}
	if len(c.data) == 0 {
		return 0, io.EOF
	}
	n := copy(p[:min(len(p), 64<<10)], c.data)
	c.data = c.data[n:]
	return n, nil
}

// given reports whether a field holds a value that is not null.
func given(raw json.RawMessage) bool { return len(raw) > 0 && string(raw) != "null" }

// each calls the argument f with every element of a JSON list. It returns an error if there are more than maxElements.
func each[T any](ctx context.Context, list json.RawMessage, f func(T) error) error {
	if !given(list) {
		return nil
	}
	d := json.NewDecoder(&cancellable{ctx, list})
	if begin, err := d.Token(); err != nil || begin != json.Delim('[') {
		return errors.New("not a list")
	}
	for range maxElements {
		if !d.More() {
			return nil
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

// readContent returns the text of a message, and the thinking in that message. Some providers send a message in parts.
func readContent(ctx context.Context, raw json.RawMessage) (text, reasoning string, err error) {
	if !bytes.HasPrefix(raw, []byte("[")) {
		if given(raw) {
			err = decode(ctx, raw, &text)
		}
		return text, "", err
	}
	type part struct {
		Type     string          `json:"type"`
		Text     string          `json:"text"`
		Thinking json.RawMessage `json:"thinking"` // from Mistral: a list of parts
	}
	var b, apart strings.Builder
	err = each(ctx, raw, func(p part) error {
		if given(p.Thinking) {
			inner, _, err := readContent(ctx, p.Thinking)
			apart.WriteString(inner)
			return err
		}
		if strings.HasPrefix(p.Type, "reasoning") || p.Type == "thinking" {
			apart.WriteString(p.Text)
			return nil
		}
		b.WriteString(p.Text)
		return nil
	})
	return b.String(), apart.String(), err
}

// clip returns the beginning of a model's thinking, at most council.MaxReasoning bytes.
func clip(text string) string {
	if len(text) <= council.MaxReasoning {
		return text
	}
	// The cut may have split a character.
	return strings.ToValidUTF8(text[:council.MaxReasoning-len("…")], "") + "…"
}

// maxBlank is how many bytes are searched for a visible character. A text that begins with more invisible bytes is no
// answer. A search through megabytes would take seconds and could not be cancelled.
const maxBlank = 64 << 10

// blank reports whether a text has no visible character. Blanks, control characters and characters without width,
// such as U+200B, are not visible.
func blank(text string) bool {
	for i, r := range text {
		if i >= maxBlank {
			break
		}
		if unicode.In(r, unicode.L, unicode.N, unicode.P, unicode.S) &&
			!unicode.Is(unicode.Other_Default_Ignorable_Code_Point, r) && r != brailleBlank {
			return false
		}
	}
	return true
}

const brailleBlank = '\u2800' // a braille symbol of six dots, none of which is raised
