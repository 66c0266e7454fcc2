"""What the engine is doing, and which model runs."""

from PySide6.QtWidgets import QProgressBar, QVBoxLayout, QWidget

from rdchat.inference.api.events import LoadProgress, ModelInfo, PrefillProgress
from rdchat.services.context.summariser import SummaryProgress
from rdchat.services.engine.engine_events import EngineState
from rdchat.ui.look import formatting
from rdchat.ui.look.labels import ElidedLabel, ThemedLabel
from rdchat.ui.look.theme import TIGHT, Theme
from rdchat.ui.speed.sections import Section

_STATE_WORDS = {
    EngineState.LOADING: "Loading the model…",
    EngineState.IDLE: "Idle",
    EngineState.PREFILL: "Reading the prompt…",
    EngineState.WRITING: "Writing",
    EngineState.NO_MODEL: "No model is loaded",
}


class StatusLine(QWidget):
    """The engine's state, with its progress while it loads or reads."""

    def __init__(self, theme: Theme) -> None:
        super().__init__()
        self.state = ElidedLabel(theme, "", "muted")
        self.state.setFont(ThemedLabel(theme, tabular=True).font())
        self.progress = QProgressBar(textVisible=False, maximum=1000)
        self.progress.setAccessibleName("Progress")
        self.progress.setFixedHeight(4)
        policy = self.progress.sizePolicy()
        policy.setRetainSizeWhenHidden(True)  # what stands below keeps its place
        self.progress.setSizePolicy(policy)
        column = QVBoxLayout(self)
        column.setContentsMargins(0, 0, 0, 0)
        column.setSpacing(TIGHT)
        column.addWidget(self.state)
        column.addWidget(self.progress)

    def show_state(self, state: EngineState) -> None:
        self.state.setText(_STATE_WORDS[state])
        self.progress.setVisible(state in (EngineState.LOADING, EngineState.PREFILL))
        self.progress.setRange(0, 0)

    def show_load(self, progress: LoadProgress) -> None:
        self.state.setText(formatting.load_words(progress))
        self.progress.setRange(0, 0 if progress.fraction is None else 1000)
        if progress.fraction is not None:
            self.progress.setValue(round(progress.fraction * 1000))

    def show_prefill(self, progress: PrefillProgress) -> None:
        self.state.setText(f"Reading the prompt {progress.processed:,} of {progress.total:,}")
        self.progress.setRange(0, max(progress.total, 1))
        self.progress.setValue(progress.processed)

    def show_summary(self, progress: SummaryProgress) -> None:
        """Show how far the model is with the summary of a chat."""
        reading = not progress.written
        read = f"Reading for a summary {progress.read:,} of {progress.to_read:,}"
        self.state.setText(read if reading else "Writing a summary")
        self.progress.setVisible(reading)
        self.progress.setRange(0, progress.to_read)
        self.progress.setValue(progress.read)


class ModelSection(Section):
    """The model's name, and what it is."""

    def __init__(self, theme: Theme) -> None:
        super().__init__(theme, "Model")
        self.model_name = self.add(ElidedLabel(theme))
        self.dtype = self.add_figure("Precision", "The format the model's weights are held in.")
        self.device = self.add_figure("Runs on", "The processor that computes the model.")
        self.parameters = self.add_figure("Parameters", "Number of weights of the model.")

    def show_model(self, state: EngineState, model: ModelInfo | None) -> None:
        none = "None" if state is EngineState.NO_MODEL else formatting.NONE
        self.model_name.setText(model.name if model else none)
        self.dtype.show_value(formatting.dtype_words(model.dtype) if model else formatting.NONE)
        self.device.show_value(model.device if model else formatting.NONE)
        self.parameters.show_value(formatting.parameters(model.parameters) if model else formatting.NONE)
