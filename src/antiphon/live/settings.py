from dataclasses import dataclass
@dataclass(frozen=True)
class Settings:
    order: str = "causal"
    durability: str = "memory"
