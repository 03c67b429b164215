"""Orders and events."""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None


def upgrade() -> None:
    """Create the tables; the ids come from the application, so no column counts by itself."""
    op.create_table(
        "orders",
        sa.Column("id", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("title", sa.String, nullable=False),
        sa.Column("made_at", sa.DateTime, server_default=sa.func.now(), nullable=False),
    )
    op.create_table(
        "events",
        sa.Column("id", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("order_id", sa.BigInteger, sa.ForeignKey("orders.id"), nullable=False),
        sa.Column("what", sa.String, nullable=False),
    )


def downgrade() -> None:
    """Drop them."""
    op.drop_table("events")
    op.drop_table("orders")
