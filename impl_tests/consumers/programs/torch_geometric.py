"""torch_geometric: lists of graphs of different sizes, whole graphs for each device."""

import torch
from torch import nn
from torch_geometric.data import Batch, Data
from torch_geometric.loader import DataListLoader
from torch_geometric.nn import DataParallel, GCNConv, global_mean_pool

from impl_tests.consumers.record import Record, make_record, step
from spec_tests import simulator


class Net(nn.Module):
    """Two graph convolutions and a mean over each graph's nodes."""

    def __init__(self) -> None:
        super().__init__()
        self.first = GCNConv(4, 16)
        self.second = GCNConv(16, 2)

    def forward(self, data: Batch) -> torch.Tensor:
        """Return the scores of the graphs."""
        hidden = self.first(data.x, data.edge_index).relu()
        pooled: torch.Tensor = global_mean_pool(self.second(hidden, data.edge_index), data.batch)
        return pooled


def _draw_graph(nodes: int) -> Data:
    edges = torch.randint(0, nodes, (2, 2 * nodes))
    return Data(x=torch.randn(nodes, 4), edge_index=edges, y=torch.tensor([nodes % 2]))


def train() -> Record:
    """Train on batches of five graphs; the last batch has one graph."""
    simulator.enable(device_count=2, as_cuda=True)  # DataParallel supports only CUDA devices.
    torch.manual_seed(0)
    graphs = [_draw_graph(nodes) for nodes in range(3, 19)]
    net = DataParallel(Net().to("sim:0"), device_ids=[0, 1])
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    losses = []
    for batch in DataListLoader(graphs, batch_size=5):
        truth = torch.cat([graph.y for graph in batch]).to("sim:0")
        loss = nn.functional.cross_entropy(net(batch), truth)
        losses.append(step(optimizer, loss))
    return make_record(losses, net.module, type(net))
