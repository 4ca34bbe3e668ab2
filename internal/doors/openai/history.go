package openai

import (
	"fmt"
	"strings"

	"github.com/councild/councild/internal/council"
	"github.com/councild/councild/internal/doors/httpapi"
)

// A conversation can hold images, tool calls and other parts from earlier turns, but a council reads only text. Only
// the user's last message must be text. Earlier turns lose the parts that a council cannot read, and the session gets a
// warning. Such parts must not make a request fail, because a client cannot change earlier turns.

// conversation is the part of a client's messages that a council reads.
type conversation struct {
	messages []council.Message
	// places holds, for each message, its index in the client's list, or instructions, or previous.
	places   []int
	warnings []council.Warning
}

// These stand for the index of a message that is not in the list. The message comes from the field "instructions", or
// from the response that the field "previous_response_id" names.
const (
	instructions = -1
	previous     = -2
)

// place returns the place in the body for a field of council.Request that begins with "messages[". The argument list is
// the name of the client's list. For any other field, the result ok is false.
func (c conversation) place(field, list string) (place string, ok bool) {
	var i int
	if n, err := fmt.Sscanf(field, "messages[%d]", &i); n == 0 || err != nil || i >= len(c.places) {
		return "", false
	}
	switch c.places[i] {
	case instructions:
		return "instructions", true
	case previous:
		return "previous_response_id", true
	}
	return fmt.Sprintf("%s[%d]%s", list, c.places[i], field[strings.IndexByte(field, ']')+1:]), true
}

// side reports whether the conversation is a side request. A chat program sends side requests for its own use, such as
// for a title or tags. A side request has a single message of the user, which begins as those of Open WebUI do. In
// a longer conversation, the user wrote such a message, so it is an ordinary question.
func (c conversation) side() bool {
	question := -1
	for i, m := range c.messages {
		switch {
		case m.Role == council.RoleSystem:
		case m.Role != council.RoleUser || question >= 0:
			return false
		default:
			question = i
		}
	}
	return question >= 0 && strings.HasPrefix(strings.TrimLeft(c.messages[question].Content, " \t\r\n"), "### Task:")
}

// readConversation returns the conversation in a client's list of messages. The argument list is the name of that list.
// The argument system holds further instructions or is "". The messages of earlier stand before the list. Two things become problems in p: parts of the user's last
// message that are not text, and foreign items after that message, except reasoning. Both are things that a council
// cannot read.
func readConversation(
	p *httpapi.Problems, list string, items []ResponseItem, system string, earlier ...council.Message,
) (c conversation) {
	last := lastQuestion(items)
	if system != "" {
		c.add(system, council.RoleSystem, instructions)
	}
	for _, m := range earlier {
		c.add(m.Content, m.Role, previous)
	}
	r := reduction{map[string]int{}}
	for i, item := range items {
		place := func() string { return fmt.Sprintf("%s[%d]", list, i) }
		switch {
		case item.foreign():
			if i > last && item.Type != "reasoning" && last >= 0 {
				unreadable(p, place, item.kind(), "end the conversation with the user's question")
			}
			r.leftOut(item.kind())
		case i == last:
			c.add(readQuestion(p, item.ChatMessage, place), council.RoleUser, i)
		default:
			if text := r.read(item.ChatMessage); strings.TrimSpace(text) != "" {
				c.add(text, item.Role, i)
			}
		}
	}
	if last < 0 {
		c.askLast()
	}
	if message := r.String(); message != "" {
		c.warnings = []council.Warning{{Code: council.WarnHistoryReduced, Message: message}}
	}
	if n := len(c.messages) - 1; (n < 0 || c.places[n] < 0) && len(items) > 0 && !p.About(list) {
		p.Add(list, "there is no question", "end the conversation with the user's question")
	}
	return c
}

// lastQuestion returns the index of the user's last message, or -1 if there is none.
func lastQuestion(items []ResponseItem) int {
	last := len(items) - 1
	for last >= 0 && (items[last].foreign() || items[last].Role != council.RoleUser) {
		last--
	}
	return last
}

// askLast makes the last message the question if the conversation has only instructions. Some programs send their
// question as an instruction.
func (c *conversation) askLast() {
	for _, m := range c.messages {
		if m.Role != council.RoleSystem {
			return
		}
	}
	if n := len(c.messages) - 1; n >= 0 && c.places[n] >= 0 {
		c.messages[n].Role = council.RoleUser
	}
}

// ask puts the conversation and its warnings into r.
func (c conversation) ask(r *council.Request) {
	r.Messages = c.messages
	r.Side = c.side()
	r.Warnings = append(r.Warnings, c.warnings...)
}

func (c *conversation) add(text, role string, place int) {
	if role == "developer" { // OpenAI's newer name for system
		role = council.RoleSystem
	}
	c.messages = append(c.messages, council.Message{Role: role, Content: text})
	c.places = append(c.places, place)
}

// foreign reports whether an item is not a message of a person or a model. Such an item may hold the reasoning of a
// model, the call of a tool, or the result of such a call.
func (i ResponseItem) foreign() bool { return foreign(i.Type, i.Role) }

func foreign(kind, role string) bool {
	return kind != "" && kind != itemMessage && kind != itemReference || role == roleTool || role == roleFunction
}

// kind returns the name of a foreign item for warnings and errors. It is the type of the item, or its role if the item
// has no type of its own.
func (i ResponseItem) kind() string {
	if i.Type == "" || i.Type == itemMessage {
		return i.Role
	}
	return i.Type
}

// These are the types of items that are messages, and the roles of messages that tools write.
const (
	itemMessage   = "message"
	itemReference = "item_reference"
	roleTool      = "tool"
	roleFunction  = "function"
)

// text returns the text of a part. ok is false if the part is not text.
func (c ChatPart) text() (text string, ok bool) {
	switch c.Type {
	case "text", "input_text", "output_text":
		return c.Text, true
	case "refusal":
		return c.Refusal, true
	default:
		return "", false
	}
}

// readQuestion returns the text of the user's last message, and refuses its other parts.
func readQuestion(p *httpapi.Problems, m ChatMessage, place func() string) string {
	var text strings.Builder
	for i, part := range m.Content {
		read, ok := part.text()
		if !ok {
			partPlace := func() string { return fmt.Sprintf("%s.content[%d]", place(), i) }
			unreadable(p, partPlace, part.Type, "send parts of type text")
		}
		text.WriteString(read)
	}
	return text.String()
}

// reduction counts the parts and items of earlier turns that the members do not see.
type reduction struct {
	// counts has the keys toolCalls and otherParts, and the texts that replace a part, such as "[image]".
	counts map[string]int
}

// shown returns the text that replaces a part of this type in an earlier turn, or "" if the part is left out.
func shown(kind string) string {
	switch kind {
	case "image_url", "input_image", "image", "output_image":
		return "[image]"
	case "file", "input_file", "document":
		return "[file]"
	case "input_audio", "audio", "output_audio", "audio_url":
		return "[audio]"
	case "video_url", "input_video", "video":
		return "[video]"
	default:
		return ""
	}
}

// read returns the text of an earlier message. A part that is not text is replaced or left out.
func (r *reduction) read(m ChatMessage) string {
	var text strings.Builder
	text.WriteString(m.Refusal)
	apart := false // the next text begins on a new line
	for _, part := range m.Content {
		read, ok := part.text()
		if !ok {
			if read = shown(part.Type); read == "" {
				r.leftOut(part.Type)
				continue
			}
			r.counts[read]++
		}
		if (apart || !ok) && text.Len() > 0 {
			text.WriteByte('\n')
		}
		text.WriteString(read)
		apart = !ok
	}
	return text.String()
}

// leftOut counts a part or item that is left out. It does not count reasoning, because reasoning is not even shown
// again to the model that wrote it.
func (r *reduction) leftOut(kind string) {
	switch {
	case kind == "reasoning", kind == "thinking":
	case strings.HasPrefix(kind, "tool"), strings.HasPrefix(kind, "function"), strings.HasSuffix(kind, "_call"),
		strings.HasSuffix(kind, "_call_output"), strings.HasPrefix(kind, "mcp_"):
		r.counts[toolCalls]++
	default:
		r.counts[otherParts]++
	}
}

// These are the keys of reduction.counts for parts and items that are left out. The warning shows these keys.
const (
	toolCalls  = "tool calls and their results"
	otherParts = "other items and parts"
)

// String returns the warning that says what the members do not see of earlier turns. It returns "" if the members see
// everything.
func (r *reduction) String() string {
	var parts []string
	for _, what := range []string{"[image]", "[file]", "[audio]", "[video]"} {
		if n := r.counts[what]; n > 0 {
			parts = append(parts, fmt.Sprintf("parts shown as %s: %d", what, n))
		}
	}
	for _, what := range []string{toolCalls, otherParts} {
		if n := r.counts[what]; n > 0 {
			parts = append(parts, fmt.Sprintf("%s left out: %d", what, n))
		}
	}
	if parts == nil {
		return ""
	}
	return "a council reads only text, so the members did not see all of the earlier turns; " +
		strings.Join(parts, ", ")
}
