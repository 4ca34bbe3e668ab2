// Package simllm is a simulated OpenAI-compatible provider: one HTTP server that
// behaves like a set of different models. It serves demonstrations, tests and
// benchmarks over HTTP, on the path that real providers take. What it sends is
// always marked: every response has the header X-Simulated: true, every
// completion the system fingerprint "simulated", every model is owned by
// "simulated", and the first line of every text that it writes says "Simulated";
// only the texts of Model.Reply and echoes of the prompt are as they are. It
// leaves to others what becomes of a reply.
//
// # What it is asked
//
// The request alone tells. A last user message that holds a question between
// "=== BEGIN QUESTION token ===" and "=== END QUESTION token ===" (token is 16
// hexadecimal digits) and, under the same token, answers between
// "=== BEGIN ANSWER token: label ===" and "=== END ANSWER token: label ===" is a
// review when the text behind the last marker contains "ranking" in double
// quotes, and a synthesis otherwise. When it is no such message but holds
// "ranking" in double quotes, and the user's message before it was a review, that
// review's ballot is asked for again. Every other conversation is a question.
// A review whose response_format is honoured is one JSON object.
// Sampling parameters are accepted and ignored, but for max_tokens and
// max_completion_tokens, which cut the text.
//
// # What is planted
//
// An answer makes six points, each on a line of its own from a fixed bank in
// which every line has a grade from 0 to 4. The mean grade is the answer's
// quality, (mean - 2) * 2 points, so that any reviewer can read the quality from
// the text, whichever server wrote it. Filler brings the text to its length
// independently of the quality. One sentence is the author's signature, by which
// a reviewer recognises an author. A text without such lines, from a real model
// or a hostile one, has a quality drawn from its hash, normal with mean 0 and
// standard deviation 1.
//
// Reviewer i gives answer j at place p of K the latent score
//
//	6 + quality_j + Harshness_i + Affinity_i[author of j]
//	  + LengthBias_i * log2(characters of j / 2000)
//	  + Position_i[p] + (Last_i at the last of several places) + Noise_i * z
//
// with z standard normal. The score is the latent score rounded and clamped to 1
// to 10; the ranking sorts by the latent score, and answers of exactly the same
// latent score share a place.
//
// # What it depends on
//
// Everything drawn at random comes from a hash of Options.Seed, the model's name
// and the content of the request less token and labels. The same request has the
// same reply, byte for byte, at any time and in any order; the exceptions are
// the headers Date and X-Simulated-Dwell-Us, faults with a limited number of
// Times, and whatever Model.Reply makes of it. Two seats of one model therefore
// write the same answer. The noise of a review is drawn for the question, the
// answer and its place.
//
// The usage figures are estimates at 4 bytes a token.
package simllm
