"""Why: the typed reasons that stand beside states. ``message`` says the same to people, with figures."""

from __future__ import annotations

from enum import StrEnum


class WaitReason(StrEnum):
    """Why a queued job is not running yet; ``starverse job why`` explains each."""

    NEW = "new"
    STARTING = "starting"
    NO_CARDS = "no_cards"
    FRAGMENTED = "fragmented"
    BEHIND_OTHERS = "behind_others"
    SHADOW_START = "shadow_start"
    DEPENDENCY = "dependency"
    BEGIN_TIME = "begin_time"
    ARRAY_LIMIT = "array_limit"
    NO_MONEY = "no_money"
    WINDOW_CLOSED = "window_closed"
    PRICE_ABOVE_MAX = "price_above_max"
    DISK_RESERVE = "disk_reserve"
    DISK_IN_USE = "disk_in_use"
    START_FAILED = "start_failed"
    RECLAIMED = "reclaimed"
    NODE_LOST = "node_lost"
    CARD_FAULT = "card_fault"
    CHECKPOINT = "checkpoint"
    PLATFORM = "platform"


class NoticeReason(StrEnum):
    """Why the platform announces a stop; part of the notice that the script reads."""

    RECLAIM = "reclaim"
    NO_MONEY = "no_money"
    COST_MAX = "cost_max"
    WINDOW_CLOSED = "window_closed"
    TIME_LIMIT = "time_limit"
    CANCEL = "cancel"
    CARD_FAULT = "card_fault"


class EndCause(StrEnum):
    """Why an allocation ended (``domain/recovery`` decides what follows)."""

    COMPLETED = "completed"
    USER_CODE = "user_code"
    OUT_OF_MEMORY = "out_of_memory"
    CARD_FAULT = "card_fault"
    NODE_LOST = "node_lost"
    RECLAIMED = "reclaimed"
    TIME_LIMIT = "time_limit"
    MONEY = "money"
    COST_MAX = "cost_max"
    WINDOW = "window"
    CANCELLED = "cancelled"
    START_FAILED = "start_failed"
    PLATFORM = "platform"


class JobEndReason(StrEnum):
    """Why a job came to its end."""

    COMPLETED = "completed"
    EXIT_CODE = "exit_code"
    SIGNAL = "signal"
    OUT_OF_MEMORY = "out_of_memory"
    TIME_LIMIT = "time_limit"
    COST_MAX = "cost_max"
    CANCELLED = "cancelled"
    IMPOSSIBLE = "impossible"
    DEPENDENCY_NEVER = "dependency_never"
    NO_REQUEUE = "no_requeue"
    START_FAILED = "start_failed"
    NO_CARDS = "no_cards"
    NO_MONEY = "no_money"
    DISK_RESERVE = "disk_reserve"
    DISK_IN_USE = "disk_in_use"
