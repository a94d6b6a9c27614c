"""`toy`: a transformer of about a million weights, drawn from a seed, with a tokenizer of its own.

It knows nothing until it is trained. It is built from the same transformers classes as any other
model, so whatever works on it works on a large one, a hundred times faster.
"""

from typing import Any

from rostra.engines.local.needs import need

PAD, BEGIN, END = "<|pad|>", "<|im_start|>", "<|im_end|>"
WORDS = (
    *("solution", "evaluation", "comparison", "consensus", "reason", "agent", "system", "user"),
    *("assistant", "answer", "question", "right", "wrong", "because", "better", "worse", "than"),
    *("the", "and", "is", "of", "to", "in", "it", "that", "are", "not", "you", "all", "one", "by"),
    *("yes", "no", "ing", "ed", "er", "tion", "boxed", "debate", "round", "rank", "other", "what"),
)
"""Words that are one token, also with a capital or a space in front. All else is spelt in bytes."""

TEMPLATE = (
    "{% for message in messages %}"
    "{{ '<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' + '\n' }}"
    "{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)


def toy_model(seed: int) -> tuple[Any, Any]:
    """The model and its tokenizer. The same seed gives the same weights."""
    torch = need("torch")
    transformers = need("transformers")
    tokenizer = toy_tokenizer()
    config = transformers.LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=128,
        intermediate_size=448,
        num_hidden_layers=4,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=4096,
        tie_word_embeddings=True,
        bos_token_id=tokenizer.convert_tokens_to_ids(BEGIN),
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
        attn_implementation="sdpa",
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        module = transformers.LlamaForCausalLM(config)
    return module, tokenizer


def toy_tokenizer() -> Any:
    """Byte-level, with whole tokens for the words of a debate."""
    tokenizers = need("tokenizers")
    transformers = need("transformers")
    bytes_ = sorted(tokenizers.pre_tokenizers.ByteLevel.alphabet())
    vocabulary = {token: index for index, token in enumerate([PAD, BEGIN, END, *bytes_])}
    merges: list[tuple[str, str]] = []

    def merge(left: str, right: str) -> None:
        if left + right not in vocabulary:
            vocabulary[left + right] = len(vocabulary)
            merges.append((left, right))

    for word in WORDS:
        for form in (word, word.capitalize()):
            for end in range(1, len(form)):
                merge(form[:end], form[end])
    for word in WORDS:
        merge("\u0120", word)
        merge("\u0120", word.capitalize())
    # A whole word is looked up before it is merged: an earlier merge must not break it.
    model = tokenizers.models.BPE(vocab=vocabulary, merges=merges, ignore_merges=True)
    core = tokenizers.Tokenizer(model)
    split = tokenizers.pre_tokenizers.Split(
        tokenizers.Regex(r" ?[A-Za-z]+|\d|[^A-Za-z\d]"), "isolated"
    )
    level = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    core.pre_tokenizer = tokenizers.pre_tokenizers.Sequence([split, level])
    core.decoder = tokenizers.decoders.ByteLevel()
    tokenizer = transformers.PreTrainedTokenizerFast(
        tokenizer_object=core, pad_token=PAD, bos_token=BEGIN, eos_token=END
    )
    tokenizer.chat_template = TEMPLATE
    return tokenizer
