"""What is asked for when a benchmark is built from conversations (paper, sections 3.1 to 3.3 and appendix A)."""

from __future__ import annotations

from typing import Literal, get_args

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from opbench.types import OP_SUBTYPES

Role = Literal["extractor", "generator", "similarity", "checker"]
ROLES: tuple[Role, ...] = get_args(Role)
Stage = Literal["profiles", "tasks", "filtering"]
STAGES: tuple[Stage, ...] = get_args(Stage)
State = Literal["candidate", "kept", "dropped", "accepted", "rejected"]

#: Topics that fully irrelevant questions are about, as far as they are unrelated to the user's own (paper, A.2).
GENERAL_TOPICS = (
    "ordinary life",
    "school life",
    "culture and education",
    "attitude and emotion",
    "relationship",
    "tourism",
    "health",
    "work",
    "politics",
    "finance",
)


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Counts(_Part):
    """How many of each kind a generator makes in one round; the defaults are the paper's."""

    topics: int = Field(5, ge=1, le=20)
    """Topics of a user."""
    irrelevant: int = Field(3, ge=0, le=20)
    """Fully irrelevant questions for each general topic that is unrelated to the user's."""
    baiting: int = Field(5, ge=0, le=50)
    """Of a user, spread over the four kinds."""
    fact: int = Field(5, ge=0, le=50)
    value: int = Field(5, ge=0, le=50)
    fine: int = Field(5, ge=0, le=50)
    """Memory-level sycophancy: a detail of a real observation is false."""
    coarse: int = Field(5, ge=0, le=50)
    """Memory-level sycophancy: the whole event is false."""
    subtopics: int = Field(3, ge=0, le=20)
    """Of each of the user's topics, for repetition."""
    repetition: int = Field(3, ge=0, le=20)
    """Open, non-leading questions for each subtopic."""


class Filters(_Part):
    """What drops a candidate."""

    fewest_words: int = Field(4, ge=1, le=50)
    most_words: int = Field(80, ge=5, le=1000)
    cosine: float = Field(0.85, gt=0.0, le=1.0)
    """A candidate is a near-duplicate from this cosine on, within a user and across users (paper, A.3.1)."""
    template_share: float = Field(0.10, gt=0.0, le=1.0)
    """Of a subtype's questions, at most this share may begin with the same words (and always `template_fewest`)."""
    template_words: int = Field(4, ge=2, le=10)
    template_fewest: int = Field(5, ge=1, le=1000)
    check_memories: bool = True
    """Whether false memories are checked against the history: those that turn out true are dropped."""
    check_need: bool = True
    """Whether irrelevance questions are asked whether they need personalisation after all."""


class BuildSpec(_Part):
    """A build. Everything but `name` determines what is made."""

    name: str = ""
    users: tuple[str, ...] = ()
    """User ids such as `conv-26/Caroline`; empty means all."""
    subtypes: tuple[str, ...] = ()
    """Of OP_SUBTYPES; empty means all."""
    extractor: str = "smollm2-135m"
    """Registry name of the model that makes summaries, profiles and topics."""
    generators: tuple[str, ...] = ("smollm2-135m",)
    """Models that write questions; each writes all of them, so that they can be compared (paper, table 4)."""
    similarity: str = "smollm2-135m"
    """The model that says which general topics are unrelated to a user's."""
    checker: str = "smollm2-135m"
    """The model that checks false memories and the need of personalisation."""
    embedder: str = "minilm"
    rounds: int = Field(1, ge=1, le=100)
    """How often each generator writes everything; a later round is asked for other questions."""
    counts: Counts = Counts()
    filters: Filters = Filters()
    temperature: float = Field(0.7, ge=0.0, le=2.0)
    """Of generators; extractor, similarity and checker answer at 0."""
    max_tokens: int = Field(1024, ge=16)
    seed: int = 0

    @field_validator("users", "subtypes", "generators")
    @classmethod
    def _no_repeats(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(dict.fromkeys(value))

    @field_validator("subtypes")
    @classmethod
    def _known(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        for name in value:
            if name not in OP_SUBTYPES:
                raise ValueError(f"no subtype '{name}'; there are {', '.join(OP_SUBTYPES)}")
        return value

    @model_validator(mode="after")
    def _some_generator(self) -> BuildSpec:
        if not self.generators:
            raise ValueError("name at least one generator")
        return self

    def model_of(self, role: Role) -> tuple[str, ...]:
        """Registry names of the models that have the role."""
        return {
            "extractor": (self.extractor,),
            "generator": self.generators,
            "similarity": (self.similarity,),
            "checker": (self.checker,),
        }[role]
