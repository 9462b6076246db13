"""impl._module_tree: modules in many places."""

from torch import nn

from impl._module_tree import collect_tree


def test_module_in_many_places_is_listed_once():
    net = nn.Linear(1, 1)
    for _ in range(40):
        net = nn.Sequential(net, net)
    tree = collect_tree(net)
    # If an assertion used ``tree``, its failure would print 2**40 modules.
    found = len(tree.modules), len(tree.parameters)
    assert found == (41, 2)
